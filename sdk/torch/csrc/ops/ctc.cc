// Connectionist temporal classification. Lengths are numbers of the host, as in ATen.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "proto/ops/families/ctc_loss.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using Pair = std::tuple<Tensor, Tensor>;

// The labels of all sequences as one dimension, and the rows of the family's input `shapes`. Invalid
// arguments are not served: the fallback raises ATen's errors.
struct Sequences {
  Sequences(const Tensor& probs, const Tensor& targets, IntArrayRef steps, IntArrayRef labels,
            int64_t blank) {
    const bool sized = IsServed(probs, ops::RowOf("_ctc_loss").dtypes) && probs.dim() == 3 &&
                       IsServed(targets, ops::kIndexTypes) && (targets.dim() == 1 || targets.dim() == 2) &&
                       blank >= 0 && blank < probs.size(2) && probs.size(1) > 0;
    const auto batch = sized ? static_cast<size_t>(probs.size(1)) : 0;
    if (!sized || steps.size() != batch || labels.size() != batch) return;
    const bool joined = targets.dim() == 1;
    served = joined || (targets.size(0) == probs.size(1));
    shapes = at::empty({probs.size(1), 3}, at::kLong);
    auto* row = shapes.mutable_data_ptr<int64_t>();
    int64_t first = 0;
    for (size_t n = 0; n < batch; ++n, row += 3) {
      served = served && steps[n] >= 0 && steps[n] <= probs.size(0) && labels[n] >= 0 &&
               (joined || labels[n] <= targets.size(1));
      row[0] = steps[n];
      row[1] = labels[n];
      row[2] = joined ? first : static_cast<int64_t>(n) * targets.size(1);
      first += labels[n];
      most = std::max(most, labels[n]);
    }
    served = served && (!joined || first == targets.numel());
    if (!served) return;
    shapes = shapes.to(probs.device());
    // A tensor of no elements has no buffer that a command could name.
    flat =
        targets.numel() > 0 ? Contiguous(targets).view({targets.numel()}) : at::zeros({1}, targets.options());
  }

  bool served = false;
  int64_t most = 0;  // labels of a sequence
  Tensor shapes, flat;
};

Pair CtcLoss(const Tensor& probs, const Tensor& targets, IntArrayRef steps, IntArrayRef labels, int64_t blank,
             bool zero_infinity) {
  static const ops::Row& row = ops::RowOf("_ctc_loss");
  const Sequences sequences(probs, targets, steps, labels, blank);
  if (!sequences.served)
    return FallbackOf<at::_ops::_ctc_loss>::Call(probs, targets, steps, labels, blank, zero_infinity);
  const Tensor loss = MakeEmpty({probs.size(1)}, probs.scalar_type(), probs.device());
  const Tensor alpha =
      MakeEmpty({probs.size(1), probs.size(0), 2 * sequences.most + 1}, probs.scalar_type(), probs.device());
  const Tensor dense = Contiguous(probs);
  Send(row,
       ops::CtcLossCall<TensorRef>{.loss = Describe(loss),
                                   .log_alpha = Describe(alpha),
                                   .log_probs = Describe(dense),
                                   .targets = Describe(sequences.flat),
                                   .shapes = Describe(sequences.shapes),
                                   .blank = blank},
       probs);
  return {loss, alpha};
}

Tensor CtcLossBackward(const Tensor& gradient, const Tensor& probs, const Tensor& targets, IntArrayRef steps,
                       IntArrayRef labels, const Tensor& loss, const Tensor& alpha, int64_t blank,
                       bool zero_infinity) {
  static const ops::Row& row = ops::RowOf("_ctc_loss_backward");
  const Sequences sequences(probs, targets, steps, labels, blank);
  const bool served = sequences.served && IsServed(gradient, row.dtypes) &&
                      gradient.scalar_type() == probs.scalar_type() && gradient.sizes() == loss.sizes();
  if (!served) {
    return FallbackOf<at::_ops::_ctc_loss_backward>::Call(gradient, probs, targets, steps, labels, loss,
                                                          alpha, blank, zero_infinity);
  }
  Tensor out = MakeEmpty(probs.sizes(), probs.scalar_type(), probs.device());
  if (out.numel() == 0) return out;
  const Tensor g = Contiguous(gradient), dense = Contiguous(probs), l = Contiguous(loss),
               a = Contiguous(alpha);
  Send(row,
       ops::CtcLossBackwardCall<TensorRef>{.grad_input = Describe(out),
                                           .grad_output = Describe(g),
                                           .log_probs = Describe(dense),
                                           .targets = Describe(sequences.flat),
                                           .shapes = Describe(sequences.shapes),
                                           .loss = Describe(l),
                                           .log_alpha = Describe(a),
                                           .blank = blank,
                                           .zero_infinity = zero_infinity},
       probs);
  return out;
}

// Lengths in tensors: their values are read.
std::vector<int64_t> ValuesOf(const Tensor& lengths) {
  TORCH_CHECK(at::isIntegralType(lengths.scalar_type(), /*includeBool=*/false), "lengths must be integral");
  const Tensor here = lengths.to(at::kCPU, at::kLong).contiguous();
  return {here.const_data_ptr<int64_t>(), here.const_data_ptr<int64_t>() + here.numel()};
}
Pair CtcLossOfTensors(const Tensor& probs, const Tensor& targets, const Tensor& steps, const Tensor& labels,
                      int64_t blank, bool zero_infinity) {
  return CtcLoss(probs, targets, ValuesOf(steps), ValuesOf(labels), blank, zero_infinity);
}
Tensor CtcLossBackwardOfTensors(const Tensor& gradient, const Tensor& probs, const Tensor& targets,
                                const Tensor& steps, const Tensor& labels, const Tensor& loss,
                                const Tensor& alpha, int64_t blank, bool zero_infinity) {
  return CtcLossBackward(gradient, probs, targets, ValuesOf(steps), ValuesOf(labels), loss, alpha, blank,
                         zero_infinity);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", XPUD_FN(CtcLoss));
  m.impl("_ctc_loss.Tensor", XPUD_FN(CtcLossOfTensors));
  m.impl("_ctc_loss_backward", XPUD_FN(CtcLossBackward));
  m.impl("_ctc_loss_backward.Tensor", XPUD_FN(CtcLossBackwardOfTensors));
}

}  // namespace
}  // namespace xpud::shim
