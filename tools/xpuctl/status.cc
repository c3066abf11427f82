#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {

int RunStatus(const Invocation& invocation) {
  return ShowView<v1::GetStatusResponse>(invocation, &control::Client::GetStatus,
                                         {StatusText, StatusCsv, HostsText});
}

}  // namespace xpud::xpuctl
