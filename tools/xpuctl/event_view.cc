#include "tools/xpuctl/event_view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/base/text.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

std::string Subject(const v1::Event& event) {
  std::string text;
  if (event.has_session()) absl::StrAppend(&text, " session ", event.session());
  if (event.has_device()) absl::StrAppend(&text, " device ", event.device());
  if (event.has_pid()) absl::StrAppend(&text, " pid ", event.pid());
  if (event.has_uid()) absl::StrAppend(&text, " user ", TenantName(event));
  if (event.has_claim()) absl::StrAppend(&text, " claim ", PrintableText(event.claim()));
  if (event.has_client_name()) absl::StrAppend(&text, " \"", PrintableText(event.client_name()), "\"");
  return text;
}

std::string TimeText(int64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(unix_ms), absl::LocalTimeZone());
}

}  // namespace

std::string LogText(const v1::LogLine& line) {
  return absl::StrFormat("%s  %-5s  %s\n", TimeText(line.unix_ms()), PrintableText(line.level()),
                         PrintableText(line.text()));
}

std::string EventText(const v1::Event& event, uint64_t last) {
  std::string text;
  if (event.sequence() > last + 1)
    text = absl::StrFormat("(%d earlier events are no longer kept)\n", event.sequence() - last - 1);
  absl::StrAppend(&text, TimeText(event.unix_ms()), "  ", PrintableText(event.kind()), Subject(event));
  if (event.has_text()) absl::StrAppend(&text, ": ", PrintableText(event.text()));
  return text + "\n";
}

}  // namespace xpud::xpuctl
