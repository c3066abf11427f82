// top: the rates between two samples, again and again.
#include "absl/strings/numbers.h"
#include "proto/base/status_macros.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/rates.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

std::string Render(const v1::GetStatusResponse& status, const Rates& rates, Output output, bool first) {
  switch (output) {
    case Output::kTable:
    case Output::kWide:
      return TopText(status, rates, output == Output::kWide);
    case Output::kJson:
    case Output::kJsonLines:
      return Document(TopJson(status, rates));
    case Output::kCsv:
      return TopCsv(status, rates).ToString(first);
  }
}

// Its own options as -w and -n; false where --interval is no time.
bool Repeat(Invocation& invocation) {
  double seconds = invocation.every.value_or(1);
  if (invocation.Has("--interval") &&
      (!absl::SimpleAtod(invocation.options.at("--interval"), &seconds) || !(seconds >= 0.05)))
    return false;
  invocation.every = seconds;
  if (invocation.Has("--once")) invocation.count = 1;
  return true;
}

}  // namespace

int RunTop(const Invocation& given) {
  Invocation invocation = given;
  if (!Repeat(invocation)) return RefuseUsage("top", "--interval takes seconds, at least 0.05");
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  auto earlier = client->GetStatus();
  if (!earlier.ok()) return Report(earlier.status());
  CatchInterrupts();
  return ShowSamples(invocation, [&](bool first) -> absl::StatusOr<std::string> {
    if (first) Pause(*invocation.every);
    ASSIGN_OR_RETURN(v1::GetStatusResponse later, client->GetStatus());
    std::string text = Render(later, Between(*earlier, later), invocation.output, first);
    *earlier = std::move(later);
    return text;
  });
}

}  // namespace xpud::xpuctl
