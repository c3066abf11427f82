// memory: shows what each tenant has of the devices' memory.
#include "tools/xpuctl/memory_text.h"

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/samples.h"

namespace xpud::xpuctl {

int RunMemory(const Invocation& invocation) {
  std::set<uint32_t> devices;
  if (invocation.Has("--device")) {
    for (const absl::string_view word : absl::StrSplit(invocation.options.at("--device"), ',')) {
      uint32_t index = 0;
      if (!absl::SimpleAtoi(word, &index))
        return RefuseUsage("memory", absl::StrCat("--device takes numbers of devices, not \"", word, "\""));
      devices.insert(index);
    }
  }
  const auto ask = [&devices](control::Client& client) -> absl::StatusOr<v1::ListMemoryResponse> {
    ASSIGN_OR_RETURN(v1::ListMemoryResponse list, client.ListMemory());
    RETURN_IF_ERROR(KeepDevices(devices, list));
    return list;
  };
  return ShowView<v1::ListMemoryResponse>(
      invocation, ask,
      {MemoryText, [](const auto& response) { return CsvOf(response.time_ns(), response.tenants()); },
       HostsText});
}

}  // namespace xpud::xpuctl
