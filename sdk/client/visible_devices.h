// $XPUD_VISIBLE_DEVICES: which of the daemon's devices a process sees, and in what order. Any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace xpud::client {

// `text` is null (all devices) or a comma-separated list of numbers. As with CUDA_VISIBLE_DEVICES, the list
// ends at the first entry that names no device, or names one again.
std::vector<uint32_t> VisibleDevices(const char* text, uint32_t count);

}  // namespace xpud::client
