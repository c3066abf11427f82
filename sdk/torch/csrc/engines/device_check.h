// Checks of values that only the device knows: what they find is an error at the next synchronisation.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace xpud::shim {

// If an element of `violated` (bool, on the device) is true, the next synchronisation raises RuntimeError
// with `message`. Does not wait. Three commands.
void CheckOnDevice(const at::Tensor& violated, std::string_view message);
// The same, if an element is not in [lowest, highest]. Four commands.
void CheckRangeOnDevice(const at::Tensor& tensor, double lowest, double highest, std::string_view message);

}  // namespace xpud::shim
