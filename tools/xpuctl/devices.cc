#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {

int RunDevices(const Invocation& invocation) {
  return ShowView<v1::ListDevicesResponse>(
      invocation, &control::Client::ListDevices,
      {DevicesText, [](const auto& response) { return CsvOf(response.time_ns(), response.devices()); },
       HostsText});
}

}  // namespace xpud::xpuctl
