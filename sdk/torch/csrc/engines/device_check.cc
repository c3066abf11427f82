#include "sdk/torch/csrc/engines/device_check.h"

#include <ATen/ATen.h>

#include "proto/ops/invalid_index.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/runtime/failed_checks.h"

namespace xpud::shim {

using at::Tensor;

// Reads a line of one element at the position `violated`, of which only 0 is in range.
void CheckOnDevice(const Tensor& violated, std::string_view message) {
  static const ops::Row& row = ops::RowOf("xpud::index_position");
  const Tensor any = violated.numel() == 1 ? violated.reshape({1}) : violated.any().view({1});
  const Tensor position = at::empty({1}, any.options().dtype(at::kLong));
  // Position 1 becomes the number of the check.
  const int64_t base = ops::InvalidIndexBase(ops::kFailedCheck) + NumberOfCheck(message) - 1;
  const MapInput inputs[] = {{0, false}, any, {1, false}, {base, false}};
  LaunchMap(row, ops::DType::kInt64, {&position, 1}, inputs);
  any.index_select(0, position);
}

void CheckRangeOnDevice(const Tensor& tensor, double lowest, double highest, std::string_view message) {
  static const ops::Row& row = ops::RowOf("xpud::outside");
  const MapInput inputs[] = {tensor, {lowest, false}, {highest, false}};
  Tensor outside;
  if (tensor.numel() > 0 && RunMap(row, inputs, outside)) CheckOnDevice(outside, message);
}

}  // namespace xpud::shim
