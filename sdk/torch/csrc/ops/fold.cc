// im2col and col2im, which are each other's gradient, and the gradient of unfold. ATen's functions check
// arguments.
#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/im2col_shape_check.h>
#include <torch/library.h>

#include "proto/ops/families/unfold.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using c10::IntArrayRef;

struct Named {
  const char* name;
  IntArrayRef pair;
};
void CheckPairs(std::initializer_list<Named> arguments) {
  for (const Named& argument : arguments) {
    TORCH_CHECK(argument.pair.size() == 2, "It is expected ", argument.name, " equals to 2, but got size ",
                argument.pair.size());
  }
}

int64_t WindowsOf(int64_t size, int64_t kernel, int64_t dilation, int64_t padding, int64_t stride) {
  return (size + 2 * padding - (dilation * (kernel - 1) + 1)) / stride + 1;
}

Tensor Im2col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  static const ops::Row& row = ops::RowOf("im2col");
  if (!IsServed(self, row.dtypes))
    return FallbackOf<at::_ops::im2col>::Call(self, kernel, dilation, padding, stride);
  CheckPairs({{"kernel_size", kernel}, {"dilation", dilation}, {"padding", padding}, {"stride", stride}});
  at::native::im2col_shape_check(self, Tensor(), kernel[0], kernel[1], dilation[0], dilation[1], padding[0],
                                 padding[1], stride[0], stride[1]);
  int64_t windows = 1;
  for (int d = 0; d < 2; ++d) {
    const auto at = static_cast<size_t>(d);
    windows *= WindowsOf(self.size(d - 2), kernel[at], dilation[at], padding[at], stride[at]);
  }
  c10::SmallVector<int64_t, 3> sizes = {self.size(-3) * kernel[0] * kernel[1], windows};
  if (self.dim() == 4) sizes.insert(sizes.begin(), self.size(0));
  const Tensor out = MakeEmpty(sizes, self.scalar_type(), self.device());
  if (out.numel() == 0) return out;
  Send(row,
       ops::UnfoldCall<TensorRef>{.out = Describe(out),
                                  .self = Describe(self),
                                  .kernel_size = ops::NumberList(kernel),
                                  .dilation = ops::NumberList(dilation),
                                  .padding = ops::NumberList(padding),
                                  .stride = ops::NumberList(stride)},
       self);
  return out;
}

Tensor Col2im(const Tensor& self, IntArrayRef size, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  static const ops::Row& row = ops::RowOf("col2im");
  if (!IsServed(self, row.dtypes))
    return FallbackOf<at::_ops::col2im>::Call(self, size, kernel, dilation, padding, stride);
  CheckPairs({{"output_size", size},
              {"kernel_size", kernel},
              {"dilation", dilation},
              {"padding", padding},
              {"stride", stride}});
  at::native::col2im_shape_check(self, Tensor(), size[0], size[1], kernel[0], kernel[1], dilation[0],
                                 dilation[1], padding[0], padding[1], stride[0], stride[1]);
  c10::SmallVector<int64_t, 4> sizes = {self.size(-2) / (kernel[0] * kernel[1]), size[0], size[1]};
  if (self.dim() == 3) sizes.insert(sizes.begin(), self.size(0));
  const Tensor out = MakeEmpty(sizes, self.scalar_type(), self.device());
  if (out.numel() == 0) return out;
  Send(row,
       ops::FoldCall<TensorRef>{.out = Describe(out),
                                .self = Describe(self),
                                .output_size = ops::NumberList(size),
                                .kernel_size = ops::NumberList(kernel),
                                .dilation = ops::NumberList(dilation),
                                .padding = ops::NumberList(padding),
                                .stride = ops::NumberList(stride)},
       self);
  return out;
}

// Windows along one dimension are the columns of an image of width 1, with the other dimensions as channels.
Tensor UnfoldBackward(const Tensor& gradient, IntArrayRef sizes, int64_t dim, int64_t size, int64_t step) {
  if (!IsServed(gradient, ops::kFloatTypes) || sizes.empty())
    return FallbackOf<at::_ops::unfold_backward>::Call(gradient, sizes, dim, size, step);
  dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  if (gradient.numel() == 0) return at::zeros(sizes, gradient.options());
  const int64_t length = sizes[static_cast<size_t>(dim)], windows = gradient.size(dim);
  const Tensor columns = gradient.movedim(dim, -1).reshape({1, -1, windows});  // [.., size, windows]
  const Tensor folded = at::col2im(columns, {length, 1}, {size, 1}, {1, 1}, {0, 0}, {step, 1});
  c10::SmallVector<int64_t, ops::kMaxRank> moved(sizes);
  moved.erase(moved.begin() + dim);
  moved.push_back(length);
  return folded.view(moved).movedim(-1, dim).contiguous();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("unfold_backward", XPUD_FN(UnfoldBackward));
  m.impl("im2col", XPUD_FN(Im2col));
  m.impl("col2im", XPUD_FN(Col2im));
}

}  // namespace
}  // namespace xpud::shim
