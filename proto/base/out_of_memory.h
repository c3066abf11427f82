// The error that says there is no memory left, in the words of PyTorch's own: what was asked for, of which
// device, what it has, what is in use and what is free. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xpud {

// What each such message begins with.
inline constexpr absl::string_view kOutOfMemoryOpening = "XPUD out of memory. ";

// Why there is none: of the `limit` bytes that `scope` has, `used` are in use.
struct MemoryShortage {
  enum class Scope : uint32_t { kProcess = 0, kUser = 1, kDevice = 2 };
  Scope scope = Scope::kDevice;
  uint64_t limit = 0;
  uint64_t used = 0;
};

// `total`: of the device, in bytes; `cause`: what the driver said, if it was asked.
absl::Status OutOfMemory(uint64_t asked, uint32_t device, uint64_t total, const MemoryShortage& shortage,
                         const std::string& cause = "");

// Whether it is the above: other things than memory run out too. True of what came over the wire.
bool IsOutOfMemory(const absl::Status& status);

// "512 bytes", "1.50 GiB".
std::string BytesText(uint64_t bytes);

}  // namespace xpud
