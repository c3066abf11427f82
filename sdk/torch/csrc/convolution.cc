// Convolution (1d to 3d, also transposed) and its gradients. ATen calls this operator for every convolution
// on this device. It is below the operator that has a CPU kernel, so the fallback is called by name.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "sdk/torch/csrc/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

Tensor Convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                   bool transposed, c10::IntArrayRef output_padding, int64_t groups) {
  return FallbackOf<at::_ops::convolution>::Call(input, weight, bias, stride, padding, dilation, transposed,
                                                 output_padding, groups);
}

// `mask` says which of the gradients (input, weight, bias) are needed.
std::tuple<Tensor, Tensor, Tensor> ConvolutionBackward(const Tensor& gradient, const Tensor& input,
                                                       const Tensor& weight, c10::IntArrayRef stride,
                                                       c10::IntArrayRef padding, c10::IntArrayRef dilation,
                                                       bool transposed, c10::IntArrayRef output_padding,
                                                       int64_t groups, std::array<bool, 3> mask) {
  const int64_t channels = gradient.size(1);
  return FallbackOf<at::_ops::convolution_backward>::Call(gradient, input, weight,
                                                          at::OptionalIntArrayRef(channels), stride, padding,
                                                          dilation, transposed, output_padding, groups, mask);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(Convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(ConvolutionBackward));
}

}  // namespace
}  // namespace xpud::shim
