// The out-of-memory error, with PyTorch's wording: the request, the device and its size, memory in use and
// free memory. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xpud {

// Every such message starts with this.
inline constexpr absl::string_view kOutOfMemoryOpening = "XPUD out of memory. ";

// The limit that was reached: `used` of the `limit` bytes of `scope` are in use.
struct MemoryShortage {
  enum class Scope : uint32_t { kProcess = 0, kUser = 1, kDevice = 2 };
  Scope scope = Scope::kDevice;
  uint64_t limit = 0;
  uint64_t used = 0;
};

// `total`: the device's memory, in bytes. `cause`: the driver's error, if it was asked.
absl::Status OutOfMemory(uint64_t asked, uint32_t device, uint64_t total, const MemoryShortage& shortage,
                         const std::string& cause = "");

// Whether `status` is such an error. Other resources can be exhausted too. Also works for a status that came
// over the wire.
bool IsOutOfMemory(const absl::Status& status);

// Formats "512 bytes", "1.50 GiB".
std::string BytesText(uint64_t bytes);

}  // namespace xpud
