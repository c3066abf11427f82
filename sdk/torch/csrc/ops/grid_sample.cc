// grid_sampler_2d, grid_sampler_3d, and their gradients.
#include <ATen/ATen.h>
#include <ATen/native/GridSamplerUtils.h>
#include <torch/library.h>

#include "proto/ops/families/grid_sample.h"
#include "sdk/torch/csrc/engines/windows.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

void Check(const Tensor& input, const Tensor& grid, int64_t mode) {
  at::native::check_grid_sampler_common(input, grid);
  if (input.dim() == 5 || grid.dim() == 5) {
    at::native::check_grid_sampler_3d(input, grid, mode);
  } else {
    at::native::check_grid_sampler_2d(input, grid);
  }
}

bool IsServedBy(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding) {
  constexpr int64_t kMost = int64_t{1} << 24;
  bool served = IsServed(input, ops::kFloatTypes) && IsServed(grid, ops::kFloatTypes) &&
                input.scalar_type() == grid.scalar_type() && mode >= 0 && mode <= 2 && padding >= 0 &&
                padding <= 2;
  for (int64_t d = 2; d < input.dim(); ++d) served = served && input.size(d) <= kMost;
  return served;
}

template <class Op>
Tensor GridSample(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, bool align) {
  static const ops::Row& row = ops::RowOf("grid_sampler_2d");
  if (!IsServedBy(input, grid, mode, padding)) return FallbackOf<Op>::Call(input, grid, mode, padding, align);
  Check(input, grid, mode);
  c10::SmallVector<int64_t, 5> sizes(grid.sizes());
  sizes.pop_back();
  sizes.insert(sizes.begin() + 1, input.size(1));
  Tensor out = at::empty(sizes, input.options());
  if (out.numel() == 0) return out;
  Send(row,
       ops::GridSampleCall<TensorRef>{.out = Describe(out),
                                      .input = Describe(input),
                                      .grid = Describe(grid),
                                      .attributes = {mode, padding, align}},
       input);
  return out;
}

template <class Op>
std::tuple<Tensor, Tensor> GridSampleBackward(const Tensor& gradient, const Tensor& input, const Tensor& grid,
                                              int64_t mode, int64_t padding, bool align,
                                              std::array<bool, 2> mask) {
  static const ops::Row& row = ops::RowOf("grid_sampler_2d_backward");
  if (!IsServedBy(input, grid, mode, padding) || gradient.scalar_type() != input.scalar_type())
    return FallbackOf<Op>::Call(gradient, input, grid, mode, padding, align, mask);
  Check(input, grid, mode);
  Tensor of_input = at::zeros_like(input, LEGACY_CONTIGUOUS_MEMORY_FORMAT);
  Tensor of_grid = at::empty_like(grid, LEGACY_CONTIGUOUS_MEMORY_FORMAT);
  if (gradient.numel() > 0) {
    Send(row,
         ops::GridSampleBackwardCall<TensorRef>{.grad_input = Describe(of_input),
                                                .grad_grid = Describe(of_grid),
                                                .grad_output = Describe(gradient),
                                                .input = Describe(input),
                                                .grid = Describe(grid),
                                                .attributes = {mode, padding, align}},
         input);
  } else {
    of_grid.zero_();
  }
  return {mask[0] ? of_input : Tensor(), mask[1] ? of_grid : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  Implement<&GridSample<at::_ops::grid_sampler_2d>>(m, "grid_sampler_2d");
  Implement<&GridSample<at::_ops::grid_sampler_3d>>(m, "grid_sampler_3d");
  Implement<&GridSampleBackward<at::_ops::grid_sampler_2d_backward>>(m, "grid_sampler_2d_backward");
  Implement<&GridSampleBackward<at::_ops::grid_sampler_3d_backward>>(m, "grid_sampler_3d_backward");
}

}  // namespace
}  // namespace xpud::shim
