#include "daemon/lane/stall_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xpud::lane {
namespace {

std::string Seconds(uint64_t ns) { return absl::StrFormat("%.1f s", static_cast<double>(ns) / 1e9); }

std::string CauseOf(const session::DeviceSession::WaitState& state) {
  std::string text;
  if (state.device_works) text = "the device works on its commands";
  if (!state.has_commands) return text;
  return absl::StrCat(text, text.empty() ? "" : "; ", "the next one waits for ",
                      records::Describe(state.stall, state.row));
}

}  // namespace

void StallWatch::Look(const session::Peer& peer, uint64_t session,
                      const session::DeviceSession::WaitState& state, uint64_t now_ns,
                      absl::FunctionRef<std::string()> others) {
  const auto add = [&](const char* kind, std::string text) {
    spdlog::warn("session_{} id={} pid={} tenant={} device={} reason=\"{}\"", kind, session, peer.pid,
                 peer.tenant.Text(), device_, text);
    events_.Add({.kind = kind,
                 .session = telemetry::Event::Session{session, peer.pid, peer.tenant, peer.name},
                 .device = device_,
                 .text = std::move(text)});
  };
  const bool stalls = state.since_ns != 0 && now_ns >= state.since_ns + after_ns_;
  const auto known = stalled_.find(session);
  if (known != stalled_.end() && (!stalls || known->second.since_ns != state.since_ns)) {
    add("resumed", absl::StrCat("after ", Seconds(now_ns - std::min(now_ns, known->second.since_ns))));
    stalled_.erase(known);
  } else if (known != stalled_.end()) {
    known->second.looked_ns = now_ns;
    return;
  }
  if (!stalls) return;
  stalled_[session] = {state.since_ns, now_ns};
  ++counts_[state.has_commands ? records::Describe(state.stall, nullptr) : "device works"];
  const std::string at_work = others();
  add("stalled", absl::StrCat("nothing of it has run or ended for ", Seconds(now_ns - state.since_ns), ": ",
                              CauseOf(state), at_work.empty() ? "" : "; others with work: ", at_work));
}

void StallWatch::Looked(uint64_t now_ns) {
  next_ns_ = now_ns + period_ns();
  std::erase_if(stalled_, [&](const auto& each) { return each.second.looked_ns != now_ns; });
}

}  // namespace xpud::lane
