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

// `total`: of the device, in bytes; `used`: by all processes; `cause`: what the driver said, if it was asked.
absl::Status DeviceOutOfMemory(uint64_t asked, uint32_t device, uint64_t total, uint64_t used,
                               const std::string& cause = "");
// `used` by this process, of `limit` bytes that it may hold.
absl::Status ProcessOutOfMemory(uint64_t asked, uint32_t device, uint64_t total, uint64_t limit,
                                uint64_t used);

// Whether it is one of the above: other things than memory run out too. True of what came over the wire.
bool IsOutOfMemory(const absl::Status& status);

// "512 bytes", "1.50 GiB".
std::string BytesText(uint64_t bytes);

}  // namespace xpud
