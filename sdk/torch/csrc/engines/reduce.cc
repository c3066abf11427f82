#include "sdk/torch/csrc/engines/reduce.h"

#include <array>

#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {

std::vector<at::Tensor> LaunchReductions(const ops::Row& row, c10::ArrayRef<at::Tensor> inputs,
                                         c10::IntArrayRef dims, bool keepdim, ops::DType compute,
                                         at::ScalarType out_type, std::span<const ops::Number> attributes) {
  const at::Tensor& self = inputs[0];
  const auto rank = static_cast<size_t>(self.dim());
  std::array<bool, ops::kMaxRank> reduced{};
  for (size_t d = 0; d < rank; ++d) reduced[d] = dims.empty();
  for (const int64_t d : dims) reduced[d] = true;
  c10::SmallVector<int64_t, ops::kMaxRank> shape;
  Sizes kept{};
  for (size_t d = 0; d < rank; ++d) {
    kept[d] = reduced[d] ? 1 : self.size(static_cast<int64_t>(d));
    if (!reduced[d] || keepdim) shape.push_back(kept[d]);
  }
  std::vector<at::Tensor> outs;
  std::array<TensorRef, ops::kMaxOutputs> out_refs;
  for (size_t o = 0; o < row.outputs; ++o) {
    outs.push_back(MakeEmpty(shape, out_type, self.device()));
    out_refs[o] = DescribeAs(outs[o], {kept.data(), rank});
  }
  if (outs[0].numel() == 0) return outs;
  c10::SmallVector<TensorRef, 4> in_refs;
  for (const at::Tensor& input : inputs) in_refs.push_back(Describe(input));
  Execute({.row = &row,
           .compute = compute,
           .outputs = {out_refs.data(), outs.size()},
           .inputs = {in_refs.data(), in_refs.size()},
           .attributes = attributes},
          DeviceIndexOf(self));
  return outs;
}

at::Tensor LaunchReduce(const ops::Row& row, const at::Tensor& self, c10::IntArrayRef dims, bool keepdim,
                        ops::DType compute, at::ScalarType out_type,
                        std::span<const ops::Number> attributes) {
  return LaunchReductions(row, self, dims, keepdim, compute, out_type, attributes)[0];
}

void WarnAboutFreedom(std::string_view op, const at::Tensor& self, const at::Tensor& out, double correction) {
  if (out.numel() == 0) return;
  const int64_t reduced = self.numel() / out.numel();
  if (static_cast<double>(reduced) > correction) return;
  TORCH_WARN(op,
             "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
             "(input numel divided by output numel).");
}

}  // namespace xpud::shim
