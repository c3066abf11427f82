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
  if (event.has_client_name()) absl::StrAppend(&text, " \"", PrintableText(event.client_name()), "\"");
  return text;
}

}  // namespace

std::string EventText(const v1::Event& event, uint64_t last) {
  std::string text;
  if (event.sequence() > last + 1)
    text = absl::StrFormat("(%d events before are no longer kept)\n", event.sequence() - last - 1);
  const std::string time =
      absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(event.unix_ms()), absl::LocalTimeZone());
  absl::StrAppend(&text, time, "  ", PrintableText(event.kind()), Subject(event));
  if (event.has_text()) absl::StrAppend(&text, ": ", PrintableText(event.text()));
  return text + "\n";
}

}  // namespace xpud::xpuctl
