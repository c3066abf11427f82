#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {

int RunPs(const Invocation& invocation) {
  return ShowView<v1::ListSessionsResponse>(
      invocation, &control::Client::ListSessions,
      {SessionsText, [](const auto& response) { return CsvOf(response.time_ns(), response.sessions()); },
       HostsText});
}

}  // namespace xpud::xpuctl
