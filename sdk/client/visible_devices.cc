#include "sdk/client/visible_devices.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace xpud::client {

std::vector<uint32_t> VisibleDevices(const char* text, uint32_t count) {
  std::vector<uint32_t> devices;
  if (text == nullptr) {
    devices.resize(count);
    std::iota(devices.begin(), devices.end(), 0u);
    return devices;
  }
  for (const auto entry : absl::StrSplit(text, ',')) {
    uint32_t device;
    if (!absl::SimpleAtoi(entry, &device) || device >= count) break;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) break;
    devices.push_back(device);
  }
  return devices;
}

}  // namespace xpud::client
