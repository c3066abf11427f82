#include "daemon/telemetry/event_log.h"

#include <chrono>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/text.h"

namespace xpud::telemetry {
namespace {

int64_t UnixMilliseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

void EventLog::Add(Event event) {
  event.text = PrintableText(event.text, kMaxText);
  if (event.session) event.session->name = PrintableText(event.session->name, kMaxText);
  event.time_ns = NowNs();
  event.unix_ms = UnixMilliseconds();
  events_.Add(std::move(event));
}

}  // namespace xpud::telemetry
