// Convolution (1d to 3d, also transposed) and its gradients. ATen calls this operator for every convolution
// on this device.
//
// A transposed convolution is the gradient of a convolution by its input. So the row of a result is that of
// the other direction, and the gradient by the weight has its two inputs exchanged.
#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>
#include <torch/library.h>

#include "proto/ops/families/convolution.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// The arguments that a convolution has besides its tensors.
struct Geometry {
  c10::IntArrayRef stride, padding, dilation;
  bool transposed;
  c10::IntArrayRef output_padding;
  int64_t groups;
};

// The attributes of a call.
struct Attributes {
  explicit Attributes(const Geometry& g)
      : stride(g.stride), padding(g.padding), dilation(g.dilation), groups(g.groups) {}
  // REQUIRES: this object outlives the call.
  operator ops::ConvolutionAttributes() const {  // NOLINT(google-explicit-constructor): a view of it
    // The settings of torch.backends.cudnn hold for this device, too.
    const at::Context& context = at::globalContext();
    return {.stride = stride,
            .padding = padding,
            .dilation = dilation,
            .groups = groups,
            .allow_tf32 = context.allowTF32CuDNN(at::Float32Op::CONV),
            .deterministic = context.deterministicCuDNN() || context.deterministicAlgorithms()};
  }
  const ops::NumberList stride, padding, dilation;
  const int64_t groups;
};

// The layout of results: channels-last if the input or the weight is, as on other devices.
at::MemoryFormat FormatOf(const Tensor& input, const Tensor& weight) {
  const auto last = input.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  if (input.dim() != 4 && input.dim() != 5) return at::MemoryFormat::Contiguous;
  const bool either = input.suggest_memory_format() == last || weight.suggest_memory_format() == last;
  return either ? last : at::MemoryFormat::Contiguous;
}

bool IsServed(const Tensor& input, const Tensor& weight, const Geometry& g) {
  const auto is_served = [&](const Tensor& tensor) {
    return IsOnDevice(tensor) && tensor.scalar_type() == input.scalar_type() && tensor.dim() >= 3 &&
           tensor.dim() <= 2 + 3 && IsSupported(tensor.scalar_type(), ops::kFloatTypes);
  };
  // Positions that an output padding of a stride or more adds are read by no kernel; the device refuses them.
  bool reached = true;
  for (size_t d = 0; g.transposed && d < g.stride.size(); ++d) reached &= g.output_padding[d] < g.stride[d];
  return is_served(input) && is_served(weight) && reached;
}

// The convolution itself, or the gradient by its input: `out` <- `from`, `weight`, `bias`, which may be
// absent.
void SendConvolution(bool by_input, const Tensor& out, const Tensor& from, const Tensor& weight,
                     const OptionalTensor& bias, const Geometry& g) {
  static const ops::Row &forward = ops::RowOf("xpud::convolution"),
                        &input = ops::RowOf("xpud::convolution_input");
  if (out.numel() == 0) return;
  const Attributes attributes(g);
  if (by_input) {
    Send(input,
         ops::ConvolutionInputCall<TensorRef>{.out = Describe(out),
                                              .gradient = Describe(from),
                                              .weight = Describe(weight),
                                              .bias = DescribeIf(bias),
                                              .attributes = attributes},
         out);
  } else {
    Send(forward,
         ops::ConvolutionCall<TensorRef>{.out = Describe(out),
                                         .input = Describe(from),
                                         .weight = Describe(weight),
                                         .bias = DescribeIf(bias),
                                         .attributes = attributes},
         out);
  }
}

// ---- windows that do not overlap: the embedding of patches ----

// Images as matrices: a row for each window, which has its channels and positions as columns. Then a
// convolution is a product, and so are its gradients.
class Patches {
 public:
  // Returns true if each element of the input belongs to at most one window, and products are faster.
  // Vendors' convolutions for GPUs take several times as long for the few channels that images have; with
  // more channels they are faster. oneDNN's are slower only for large windows, or for the gradient by the
  // input.
  static bool Serve(const Tensor& input, const Tensor& weight, const Geometry& g, bool by_input = false) {
    if (g.transposed || g.groups != 1 || input.numel() == 0 || weight.numel() == 0) return false;
    if (input.size(1) > kFewChannels) return false;
    const bool cpu = Runtime::Get().device(DeviceIndexOf(input)).kind == "cpu";
    if (weight.numel() / weight.size(0) < (cpu && !by_input ? kManyColumns : kFewColumns)) return false;
    for (size_t d = 0; d < g.stride.size(); ++d) {
      const auto dim = static_cast<int64_t>(d) + 2;
      const bool apart = g.stride[d] == weight.size(dim) && g.dilation[d] == 1 && g.padding[d] == 0;
      if (!apart || input.size(dim) < g.stride[d]) return false;
    }
    return true;
  }

  Patches(const Tensor& input, const Tensor& weight, c10::IntArrayRef stride)
      : input_(input), stride_(stride) {
    rows_ = input.size(0);
    for (size_t d = 0; d < stride.size(); ++d) {
      counts_.push_back(input.size(static_cast<int64_t>(d) + 2) / stride[d]);
      rows_ *= counts_.back();
    }
    columns_ = weight.numel() / weight.size(0);
  }

  // [images and windows, channels and positions]
  Tensor Matrix() const { return Windows(input_).reshape({rows_, columns_}); }

  // The gradient by the input, from that of the matrix. Elements that are in no window get 0.
  Tensor Images(const Tensor& matrix, at::MemoryFormat format) const {
    const auto options = input_.options().memory_format(format);
    bool whole = true;
    for (size_t d = 0; d < stride_.size(); ++d)
      whole &= input_.size(static_cast<int64_t>(d) + 2) == counts_[d] * stride_[d];
    const Tensor images = whole ? at::empty(input_.sizes(), options) : at::zeros(input_.sizes(), options);
    Tensor windows = Windows(images);
    windows.copy_(matrix.view(windows.sizes()));
    return images;
  }

  // The windows' results, from rows of outputs: [images, outputs, windows ..].
  Tensor Outputs(const Tensor& matrix, at::MemoryFormat format) const {
    std::vector<int64_t> sizes = {input_.size(0)};
    sizes.insert(sizes.end(), counts_.begin(), counts_.end());
    sizes.push_back(matrix.size(1));
    const Tensor last = matrix.view(sizes).movedim(-1, 1);
    return format == at::MemoryFormat::Contiguous ? last.contiguous() : last.contiguous(format);
  }

  // The inverse.
  Tensor OutputRows(const Tensor& outputs) const {
    return outputs.movedim(1, -1).reshape({rows_, outputs.size(1)});
  }

 private:
  static constexpr int64_t kFewChannels = 4, kFewColumns = 16, kManyColumns = 256;

  // A view: [images, windows .., channels, positions ..].
  Tensor Windows(const Tensor& images) const {
    const auto dims = static_cast<int64_t>(stride_.size());
    Tensor windows = images;
    for (int64_t d = 0; d < dims; ++d)
      windows = windows.unfold(d + 2, stride_[static_cast<size_t>(d)], stride_[static_cast<size_t>(d)]);
    return windows.movedim(1, dims + 1);
  }

  const Tensor input_;
  const c10::IntArrayRef stride_;
  std::vector<int64_t> counts_;  // of windows, by dimension
  int64_t rows_, columns_;
};

Tensor Convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                   bool transposed, c10::IntArrayRef output_padding, int64_t groups) {
  const Geometry g = {stride, padding, dilation, transposed, output_padding, groups};
  const bool has_bias = bias.has_value() && bias->defined();
  if (!IsServed(input, weight, g) || (has_bias && bias->scalar_type() != input.scalar_type())) {
    return FallbackOf<at::_ops::convolution>::Call(input, weight, bias, stride, padding, dilation, transposed,
                                                   output_padding, groups);
  }
  if (Patches::Serve(input, weight, g)) {
    const Patches patches(input, weight, stride);
    return patches.Outputs(at::linear(patches.Matrix(), weight.reshape({weight.size(0), -1}), bias),
                           FormatOf(input, weight));
  }
  const std::vector<int64_t> sizes =
      transposed ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride,
                                               dilation, groups)
                 : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  Tensor out = at::empty(sizes, input.options().memory_format(FormatOf(input, weight)));
  SendConvolution(transposed, out, input, weight, bias, g);
  return out;
}

Tensor InputGradient(const Tensor& gradient, const Tensor& input, const Tensor& weight, const Geometry& g) {
  if (Patches::Serve(input, weight, g, /*by_input=*/true)) {
    const Patches patches(input, weight, g.stride);
    return patches.Images(at::mm(patches.OutputRows(gradient), weight.reshape({weight.size(0), -1})),
                          FormatOf(input, weight));
  }
  Tensor out = at::empty(input.sizes(), input.options().memory_format(FormatOf(input, weight)));
  SendConvolution(!g.transposed, out, gradient, weight, std::nullopt, g);
  return out;
}

Tensor WeightGradient(const Tensor& gradient, const Tensor& input, const Tensor& weight, const Geometry& g) {
  static const ops::Row& row = ops::RowOf("xpud::convolution_weight");
  if (Patches::Serve(input, weight, g)) {
    const Patches patches(input, weight, g.stride);
    const Tensor product = at::mm(patches.OutputRows(gradient).t(), patches.Matrix());
    return product.view(weight.sizes()).contiguous(FormatOf(input, weight));
  }
  Tensor out = at::empty(weight.sizes(), weight.options().memory_format(FormatOf(input, weight)));
  if (gradient.numel() == 0 || input.numel() == 0) return out.zero_();
  const Tensor &output = g.transposed ? input : gradient, &from = g.transposed ? gradient : input;
  const Attributes attributes(g);
  Send(row,
       ops::ConvolutionWeightCall<TensorRef>{.out = Describe(out),
                                             .gradient = Describe(output),
                                             .input = Describe(from),
                                             .attributes = attributes},
       out);
  return out;
}

// `mask` says which of the gradients (input, weight, bias) are needed.
std::tuple<Tensor, Tensor, Tensor> ConvolutionBackward(const Tensor& gradient, const Tensor& input,
                                                       const Tensor& weight, c10::IntArrayRef stride,
                                                       c10::IntArrayRef padding, c10::IntArrayRef dilation,
                                                       bool transposed, c10::IntArrayRef output_padding,
                                                       int64_t groups, std::array<bool, 3> mask) {
  const Geometry g = {stride, padding, dilation, transposed, output_padding, groups};
  if (!IsServed(input, weight, g) || gradient.scalar_type() != input.scalar_type()) {
    return FallbackOf<at::_ops::convolution_backward>::Call(
        gradient, input, weight, at::OptionalIntArrayRef(gradient.size(1)), stride, padding, dilation,
        transposed, output_padding, groups, mask);
  }
  std::tuple<Tensor, Tensor, Tensor> gradients;
  if (mask[0]) std::get<0>(gradients) = InputGradient(gradient, input, weight, g);
  if (mask[1]) std::get<1>(gradients) = WeightGradient(gradient, input, weight, g);
  if (mask[2]) {
    std::vector<int64_t> others = {0};
    for (int64_t d = 2; d < gradient.dim(); ++d) others.push_back(d);
    std::get<2>(gradients) = gradient.sum(others);
  }
  return gradients;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", XPUD_FN(Convolution));
  m.impl("convolution_backward_overrideable", XPUD_FN(ConvolutionBackward));
}

}  // namespace
}  // namespace xpud::shim
