#include "daemon/service/control_events.h"

#include <algorithm>
#include <chrono>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::service {
namespace {

constexpr std::chrono::milliseconds kMaxWait{10'000};

void Fill(const telemetry::Event& event, v1::Event& out) {
  out.set_sequence(event.sequence);
  out.set_time_ns(event.time_ns);
  out.set_unix_ms(event.unix_ms);
  out.set_kind(event.kind);
  if (event.session) {
    out.set_session(event.session->id);
    out.set_pid(event.session->pid);
    if (event.session->tenant.claim.empty())
      out.set_uid(event.session->tenant.uid);
    else
      out.set_claim(event.session->tenant.claim);
    if (!event.session->tenant.name.empty()) out.set_tenant_name(event.session->tenant.name);
    out.set_client_name(event.session->name);
  }
  if (!event.claim.empty()) out.set_claim(event.claim);
  if (event.device) out.set_device(*event.device);
  if (event.executor_pid) out.set_pid(*event.executor_pid);
  if (!event.text.empty()) out.set_text(event.text);
}

}  // namespace

template <typename Item>
absl::StatusOr<typename RecentList<Item>::Items> EventReaders::Read(const RecentList<Item>& list,
                                                                    uint64_t after, size_t most,
                                                                    uint32_t wait_ms) {
  typename RecentList<Item>::Items items = list.After(after, most);
  if (!items.empty() || wait_ms == 0) return items;
  const absl::Cleanup leave = [this] { --waiting_; };
  if (++waiting_ > kMaxWaiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxWaiting, " readers wait for events or log lines already; end one"));
  }
  items = list.AwaitAfter(after, most, std::min(std::chrono::milliseconds(wait_ms), kMaxWait));
  if (list.ended()) return absl::UnavailableError("the daemon is ending");
  return items;
}

absl::Status EventReaders::List(const telemetry::EventLog& log, const v1::ListEventsRequest& request,
                                v1::ListEventsResponse& out) {
  ASSIGN_OR_RETURN(const auto events, Read(log.list(), request.after(), kMaxEvents, request.wait_ms()));
  for (const auto& event : events) Fill(*event, *out.add_events());
  return absl::OkStatus();
}

absl::Status EventReaders::List(const telemetry::LogLines& log, const v1::ListLogRequest& request,
                                v1::ListLogResponse& out) {
  const std::string least = request.level().empty() ? "trace" : request.level();
  const auto level = telemetry::LevelOf(least);
  if (!level) {
    return absl::InvalidArgumentError(
        absl::StrCat("no log level '", PrintableText(least, 32), "'; use trace, debug, info, warn or error"));
  }
  out.set_last(request.after());
  ASSIGN_OR_RETURN(const auto lines, Read(log, request.after(), kMaxLines, request.wait_ms()));
  for (const auto& line : lines) {
    out.set_last(line->sequence);
    if (line->level < *level) continue;
    v1::LogLine& to = *out.add_lines();
    to.set_sequence(line->sequence);
    to.set_unix_ms(line->unix_ms);
    to.set_level(std::string(telemetry::NameOf(line->level)));
    to.set_text(line->text);
  }
  return absl::OkStatus();
}

}  // namespace xpud::service
