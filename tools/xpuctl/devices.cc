#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

void Print(const v1::ListDevicesResponse& list) {
  Table table({">INDEX", "NAME", "KIND", "VENDOR", "DRIVER", ">UNITS", ">MEMORY", ">USED", ">POOL", ">BUSY",
               ">COMMANDS", ">LAUNCHES"});
  for (const v1::Device& device : list.devices()) {
    table.Add({absl::StrCat(device.index()), device.name(), device.kind(), device.vendor(), device.driver(),
               absl::StrCat(device.compute_units()), Bytes(static_cast<double>(device.memory_total_bytes())),
               Bytes(static_cast<double>(device.memory_used_bytes())),
               Bytes(static_cast<double>(device.pool_bytes())), Duration(device.busy_ns()),
               Count(static_cast<double>(device.commands_completed())),
               Count(static_cast<double>(device.launches()))});
  }
  std::fputs(table.ToString().c_str(), stdout);
}

}  // namespace

int RunDevices(const Invocation& invocation) {
  if (const int refused = RefuseArguments("devices", invocation)) return refused;
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  auto list = client->ListDevices();
  if (!list.ok()) return Report(list.status());
  invocation.output == Output::kJson ? void(std::puts(ToJson(*list).c_str())) : Print(*list);
  return kOk;
}

}  // namespace xpud::xpuctl
