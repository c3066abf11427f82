#include "daemon/service/control_events.h"

#include <algorithm>
#include <chrono>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace xpud::service {
namespace {

constexpr std::chrono::milliseconds kMostWait{10'000};

void Fill(const scheduler::Event& event, v1::Event& out) {
  out.set_sequence(event.sequence);
  out.set_time_ns(event.time_ns);
  out.set_unix_ms(event.unix_ms);
  out.set_kind(event.kind);
  if (event.session) {
    out.set_session(event.session->id);
    out.set_pid(event.session->pid);
    out.set_uid(event.session->tenant.uid);
    if (!event.session->tenant.name.empty()) out.set_tenant_name(event.session->tenant.name);
    out.set_client_name(event.session->name);
  }
  if (event.device) out.set_device(*event.device);
  if (event.executor_pid) out.set_pid(*event.executor_pid);
  if (!event.text.empty()) out.set_text(event.text);
}

}  // namespace

absl::Status EventReaders::List(const scheduler::EventLog& log, const v1::ListEventsRequest& request,
                                v1::ListEventsResponse& out) {
  scheduler::EventLog::Events events = log.After(request.after(), kMostEvents);
  if (events.empty() && request.wait_ms() > 0) {
    const absl::Cleanup leave = [this] { --waiting_; };
    if (++waiting_ > kMostWaiting) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMostWaiting, " readers wait for events already; end one"));
    }
    const std::chrono::milliseconds wait(request.wait_ms());
    events = log.AwaitAfter(request.after(), kMostEvents, std::min(wait, kMostWait));
    if (log.ended()) return absl::UnavailableError("the daemon is ending");
  }
  for (const auto& event : events) Fill(*event, *out.add_events());
  return absl::OkStatus();
}

}  // namespace xpud::service
