// Losses and activations whose schema differs from the inputs of their row: reductions over elements,
// weights, several results.
#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/LossMulti.h>
#include <torch/library.h>

#include <limits>

#include "proto/ops/families/nll_loss.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/device_check.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/engines/reduce.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;

bool IsFloating(const Tensor& tensor) { return IsServed(tensor, ops::kFloatTypes); }

// ---- reductions ----

Tensor Reduced(const Tensor& loss, int64_t reduction) {
  if (reduction == at::Reduction::Mean) return loss.mean();
  return reduction == at::Reduction::Sum ? loss.sum() : loss;
}

// What the gradient of each element's loss is multiplied by.
double FactorOf(const Tensor& self, int64_t reduction) {
  return reduction == at::Reduction::Mean ? 1.0 / static_cast<double>(self.numel()) : 1.0;
}

Tensor MseLoss(const Tensor& self, const Tensor& target, int64_t reduction) {
  const Tensor difference = at::sub(self, target);
  return Reduced(difference.mul(difference), reduction);
}
Tensor MseLossBackward(const Tensor& gradient, const Tensor& self, const Tensor& target, int64_t reduction) {
  return at::sub(self, target).mul_(2 * FactorOf(self, reduction)).mul(gradient);
}

Tensor SmoothL1Loss(const Tensor& self, const Tensor& target, int64_t reduction, double beta) {
  static const ops::Row& row = ops::RowOf("xpud::smooth_l1");
  TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
  const MapInput inputs[] = {self, target, MapInput(beta, false)};
  Tensor loss;
  if (RunMap(row, inputs, loss)) return Reduced(loss, reduction);
  return FallbackOf<at::_ops::smooth_l1_loss>::Call(self, target, reduction, beta);
}
Tensor SmoothL1LossBackward(const Tensor& gradient, const Tensor& self, const Tensor& target,
                            int64_t reduction, double beta) {
  static const ops::Row& row = ops::RowOf("xpud::smooth_l1_backward");
  const MapInput inputs[] = {gradient, self, target, MapInput(beta, false),
                             MapInput(FactorOf(self, reduction), false)};
  Tensor out;
  if (RunMap(row, inputs, out)) return out;
  return FallbackOf<at::_ops::smooth_l1_loss_backward>::Call(gradient, self, target, reduction, beta);
}

Tensor HuberLoss(const Tensor& self, const Tensor& target, int64_t reduction, double delta) {
  static const ops::Row& row = ops::RowOf("xpud::huber");
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  const MapInput inputs[] = {self, target, MapInput(delta, false)};
  Tensor loss;
  if (RunMap(row, inputs, loss)) return Reduced(loss, reduction);
  return FallbackOf<at::_ops::huber_loss>::Call(self, target, reduction, delta);
}
Tensor HuberLossBackward(const Tensor& gradient, const Tensor& self, const Tensor& target, int64_t reduction,
                         double delta) {
  static const ops::Row& row = ops::RowOf("xpud::huber_backward");
  const MapInput inputs[] = {gradient, self, target, MapInput(delta, false),
                             MapInput(FactorOf(self, reduction), false)};
  Tensor out;
  if (RunMap(row, inputs, out)) return out;
  return FallbackOf<at::_ops::huber_loss_backward>::Call(gradient, self, target, reduction, delta);
}

Tensor BinaryCrossEntropy(const Tensor& self, const Tensor& target, const OptionalTensor& weight,
                          int64_t reduction) {
  static const ops::Row& row = ops::RowOf("xpud::binary_cross_entropy");
  const MapInput inputs[] = {self, target};
  Tensor loss;
  if (!RunMap(row, inputs, loss))
    return FallbackOf<at::_ops::binary_cross_entropy>::Call(self, target, weight, reduction);
  CheckRangeOnDevice(self, 0, 1, "all elements of input should be between 0 and 1");
  return Reduced(IsGiven(weight) ? loss.mul(*weight) : loss, reduction);
}
Tensor BinaryCrossEntropyBackward(const Tensor& gradient, const Tensor& self, const Tensor& target,
                                  const OptionalTensor& weight, int64_t reduction) {
  static const ops::Row& row = ops::RowOf("xpud::binary_cross_entropy_backward");
  const MapInput inputs[] = {gradient, self, target, MapInput(FactorOf(self, reduction), false)};
  Tensor out;
  if (!RunMap(row, inputs, out))
    return FallbackOf<at::_ops::binary_cross_entropy_backward>::Call(gradient, self, target, weight,
                                                                     reduction);
  return IsGiven(weight) ? out.mul(*weight) : out;
}

// ---- negative log likelihood of images: that of each position ----

void CheckImages(const Tensor& self, const Tensor& target, const OptionalTensor& weight) {
  TORCH_CHECK(target.dim() == 3, "only batches of spatial targets supported (3D tensors)",
              " but got targets of size: : ", target.sizes());
  TORCH_CHECK(self.dim() == 4, "only batches of spatial inputs supported (4D tensors), ",
              "but got input of size: ", self.sizes());
  TORCH_CHECK(
      self.size(0) == target.size(0) && self.size(2) == target.size(1) && self.size(3) == target.size(2),
      "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
  TORCH_CHECK(!IsGiven(weight) || weight->numel() == self.size(1),
              "weight tensor should be defined either for all or no classes");
}

// [N, .., H, W] as [N, .., H * W]; copies only what has gaps between rows.
Tensor Planes(const Tensor& images) { return images.flatten(-2); }

bool ArePlanesServed(const Tensor& self, const Tensor& target, const OptionalTensor& weight) {
  return IsServed(self, ops::kFloatTypes) && IsServed(target, ops::kIndexTypes) && self.numel() > 0 &&
         (!IsGiven(weight) || weight->scalar_type() == self.scalar_type());
}

std::tuple<Tensor, Tensor> NllLoss2d(const Tensor& self, const Tensor& target, const OptionalTensor& weight,
                                     int64_t reduction, int64_t ignore) {
  static const ops::Row& row = ops::RowOf("nll_loss2d_forward");
  CheckImages(self, target, weight);
  if (!ArePlanesServed(self, target, weight))
    return FallbackOf<at::_ops::nll_loss2d_forward>::Call(self, target, weight, reduction, ignore);
  const bool each = reduction == at::Reduction::None;
  const Tensor loss =
      MakeEmpty(each ? target.sizes() : c10::IntArrayRef(), self.scalar_type(), self.device());
  const Tensor total = MakeEmpty({}, self.scalar_type(), self.device());
  const Tensor scores = Planes(self), targets = Planes(target), losses = each ? Planes(loss) : loss;
  Send(row,
       ops::NllLossCall<TensorRef>{.out = Describe(losses),
                                   .total_weight = Describe(total),
                                   .self = Describe(scores),
                                   .target = Describe(targets),
                                   .weight = DescribeIf(weight),
                                   .attributes = {reduction, ignore}},
       self);
  return {loss, total};
}

Tensor NllLoss2dBackward(const Tensor& gradient, const Tensor& self, const Tensor& target,
                         const OptionalTensor& weight, int64_t reduction, int64_t ignore,
                         const Tensor& total) {
  static const ops::Row& row = ops::RowOf("nll_loss2d_backward");
  CheckImages(self, target, weight);
  if (!ArePlanesServed(self, target, weight) || gradient.scalar_type() != self.scalar_type()) {
    return FallbackOf<at::_ops::nll_loss2d_backward>::Call(gradient, self, target, weight, reduction, ignore,
                                                           total);
  }
  const Tensor out = MakeEmpty(self.sizes(), self.scalar_type(), self.device());
  const Tensor scores = Planes(self), targets = Planes(target), planes = Planes(out);
  const Tensor each = reduction == at::Reduction::None ? Planes(gradient) : gradient;
  Send(row,
       ops::NllLossBackwardCall<TensorRef>{.grad_input = Describe(planes),
                                           .grad_output = Describe(each),
                                           .self = Describe(scores),
                                           .target = Describe(targets),
                                           .weight = DescribeIf(weight),
                                           .attributes = {reduction, ignore}},
       self);
  return out;
}

// ---- margins of classes: each class but the target's costs max(0, margin - x[target] + x)^p / classes ----

struct Margins {
  Margins(const Tensor& self, const Tensor& target, const at::Scalar& p, const at::Scalar& margin,
          const OptionalTensor& weight)
      : square(p.toDouble() == 2) {
    int64_t rows = 0;
    at::native::multi_margin_loss_shape_check(rows, classes, self.dim(), self, target, weight);
    TORCH_CHECK(p.toDouble() == 1 || square, "only p == 1 and p == 2 supported");
    const Tensor x = self.reshape({rows, classes});
    const Tensor index = target.reshape({rows, 1});
    others = at::arange(classes, target.options()).ne(index);
    excess = x.sub(x.gather(1, index)).add_(margin).clamp_min_(0).mul_(others);
    if (IsGiven(weight))
      weights = weight->reshape({classes}).index_select(0, index.view({rows})).view(index.sizes());
  }
  // Multiplied with the weights of their rows' classes.
  Tensor Weighted(const Tensor& values) const { return weights.defined() ? values.mul(weights) : values; }

  int64_t classes = 0;
  bool square;
  Tensor others, excess, weights;
};

bool AreMarginsServed(const Tensor& self, const Tensor& target) {
  return IsFloating(self) && IsServed(target, ops::SetOf(ops::DType::kInt64)) && self.numel() > 0;
}

Tensor MultiMarginLoss(const Tensor& self, const Tensor& target, const at::Scalar& p,
                       const at::Scalar& margin, const OptionalTensor& weight, int64_t reduction) {
  if (!AreMarginsServed(self, target))
    return FallbackOf<at::_ops::multi_margin_loss>::Call(self, target, p, margin, weight, reduction);
  const Margins margins(self, target, p, margin, weight);
  const Tensor& excess = margins.excess;
  const Tensor each = margins.Weighted(margins.square ? excess.mul(excess) : excess);
  const Tensor losses = each.sum(1).div_(static_cast<double>(margins.classes));
  return Reduced(target.dim() == 0 ? losses.squeeze(0) : losses, reduction);
}

Tensor MultiMarginLossBackward(const Tensor& gradient, const Tensor& self, const Tensor& target,
                               const at::Scalar& p, const at::Scalar& margin, const OptionalTensor& weight,
                               int64_t reduction) {
  if (!AreMarginsServed(self, target)) {
    return FallbackOf<at::_ops::multi_margin_loss_backward>::Call(gradient, self, target, p, margin, weight,
                                                                  reduction);
  }
  const Margins margins(self, target, p, margin, weight);
  const Tensor& excess = margins.excess;
  const Tensor slopes =
      margins.Weighted(margins.square ? excess.mul(2) : excess.gt(0).to(self.scalar_type()));
  const Tensor own = slopes.sum(1, /*keepdim=*/true).neg_();
  const int64_t rows = excess.size(0);
  const double factor =
      1 / static_cast<double>(margins.classes * (reduction == at::Reduction::Mean ? rows : 1));
  const Tensor by_row = gradient.dim() == 0 ? gradient : gradient.reshape({rows, 1});
  return at::where(margins.others, slopes, own).mul_(factor).mul_(by_row).view(self.sizes());
}

// ---- margins of several classes: each target's score exceeds that of each other class by 1, or costs the
// rest. Targets are the class numbers before the first negative one ----

struct LabelPairs {
  LabelPairs(const Tensor& self, const Tensor& target) {
    int64_t rows = 0;
    at::native::multilabel_margin_loss_shape_check(rows, classes, self.dim(), self, target);
    const Tensor x = self.reshape({rows, classes}), labels = target.reshape({rows, classes});
    const Tensor named = labels.ge(0).to(at::kLong).cumprod(1);
    index = labels.mul(named);
    const Tensor is_named = named.to(self.scalar_type());
    is_target = at::zeros({rows, classes}, self.options()).scatter_reduce(1, index, is_named, "amax");
    score = x.unsqueeze(1).expand({rows, classes, classes});
    wanted = x.gather(1, index).unsqueeze(2);
    counts = is_named.unsqueeze(2);
    other = at::rsub(is_target, 1).unsqueeze(1);
  }
  // A sum over targets (dimension 1) and classes (dimension 2).
  Tensor Sum(const ops::Row& row, c10::IntArrayRef dims) const {
    return LaunchReductions(row, {score, wanted, counts, other}, dims, false, *ToDType(score.scalar_type()),
                            score.scalar_type())[0];
  }

  int64_t classes = 0;
  Tensor index, is_target;
  Tensor score, wanted, counts, other;
};

bool AreLabelsServed(const Tensor& self, const Tensor& target) {
  return AreMarginsServed(self, target) && self.dim() <= 2;
}

std::tuple<Tensor, Tensor> MultilabelMarginLoss(const Tensor& self, const Tensor& target, int64_t reduction) {
  static const ops::Row& row = ops::RowOf("xpud::multilabel_margin");
  if (!AreLabelsServed(self, target))
    return FallbackOf<at::_ops::multilabel_margin_loss_forward>::Call(self, target, reduction);
  const LabelPairs pairs(self, target);
  const Tensor losses = pairs.Sum(row, {1, 2}).div_(static_cast<double>(pairs.classes));
  return {Reduced(target.dim() < 2 ? losses.squeeze(0) : losses, reduction),
          pairs.is_target.view(target.sizes())};
}

Tensor MultilabelMarginLossBackward(const Tensor& gradient, const Tensor& self, const Tensor& target,
                                    int64_t reduction, const Tensor& is_target) {
  static const ops::Row& row = ops::RowOf("xpud::multilabel_margin_slope");
  if (!AreLabelsServed(self, target)) {
    return FallbackOf<at::_ops::multilabel_margin_loss_backward>::Call(gradient, self, target, reduction,
                                                                       is_target);
  }
  const LabelPairs pairs(self, target);
  const Tensor slopes = pairs.Sum(row, {1}).scatter_add(1, pairs.index, pairs.Sum(row, {2}).neg_());
  const int64_t rows = slopes.size(0);
  const double factor =
      1 / static_cast<double>(pairs.classes * (reduction == at::Reduction::Mean ? rows : 1));
  const Tensor by_row = gradient.dim() == 0 ? gradient : gradient.reshape({rows, 1});
  return slopes.mul(factor).mul_(by_row).view(self.sizes());
}

// ---- activations ----

std::tuple<Tensor, Tensor> LogSigmoid(const Tensor& self) {
  static const ops::Row& row = ops::RowOf("xpud::log_sigmoid");
  const MapInput inputs[] = {self};
  Tensor out;
  if (!RunMap(row, inputs, out)) return FallbackOf<at::_ops::log_sigmoid_forward>::Call(self);
  return {out, at::empty({0}, self.options())};  // the CPU's kernel keeps a buffer there
}
Tensor LogSigmoidBackward(const Tensor& gradient, const Tensor& self, const Tensor& buffer) {
  static const ops::Row& row = ops::RowOf("xpud::log_sigmoid_backward");
  const MapInput inputs[] = {gradient, self};
  Tensor out;
  return RunMap(row, inputs, out) ? out
                                  : FallbackOf<at::_ops::log_sigmoid_backward>::Call(gradient, self, buffer);
}

std::tuple<Tensor, Tensor> PreluBackward(const Tensor& gradient, const Tensor& self, const Tensor& weight) {
  static const ops::Row& row = ops::RowOf("xpud::prelu_backward");
  const bool same = gradient.scalar_type() == self.scalar_type() &&
                    weight.scalar_type() == self.scalar_type() && gradient.sizes() == self.sizes();
  if (!IsFloating(self) || !IsOnDevice(weight) || !same)
    return FallbackOf<at::_ops::_prelu_kernel_backward>::Call(gradient, self, weight);
  const Tensor outs[] = {at::empty_like(self), at::empty_like(self)};
  const MapInput inputs[] = {gradient, self, weight};
  LaunchMap(row, *ToDType(self.scalar_type()), outs, inputs);
  return {outs[0], outs[1]};
}

// Without `eps`, the row gets a negative one.
Tensor& LogitOut(const Tensor& self, std::optional<double> eps, Tensor& out) {
  static const ops::Row& row = ops::RowOf("xpud::logit");
  const MapInput inputs[] = {self, MapInput(eps.value_or(-1), false)};
  if (RunMap(row, inputs, out)) return out;
  if (out.defined()) return FallbackOf<at::_ops::logit_out>::Call(self, eps, out);
  return out = FallbackOf<at::_ops::logit>::Call(self, eps);
}
Tensor Logit(const Tensor& self, std::optional<double> eps) {
  Tensor out;
  return LogitOut(self, eps, out);
}
Tensor LogitBackward(const Tensor& gradient, const Tensor& self, std::optional<double> eps) {
  static const ops::Row& row = ops::RowOf("xpud::logit_backward");
  const MapInput inputs[] = {gradient, self, MapInput(eps.value_or(-1), false)};
  Tensor out;
  return RunMap(row, inputs, out) ? out : FallbackOf<at::_ops::logit_backward>::Call(gradient, self, eps);
}

// Returns true if `lambda` is neither negative nor above the numbers of the type.
bool IsThreshold(double lambda, at::ScalarType type) {
  double most = std::numeric_limits<double>::max();
  if (type == at::kFloat) most = std::numeric_limits<float>::max();
  if (type == at::kHalf) most = static_cast<float>(std::numeric_limits<c10::Half>::max());
  if (type == at::kBFloat16) most = static_cast<float>(std::numeric_limits<c10::BFloat16>::max());
  return lambda >= 0 && lambda <= most;
}

// The fallback raises the CPU's error for a `lambda` that is no threshold.
Tensor& SoftshrinkOut(const Tensor& self, const at::Scalar& lambda, Tensor& out) {
  static const ops::Row& row = ops::RowOf("softshrink");
  const MapInput inputs[] = {self, MapInput(lambda, false)};
  if (IsThreshold(lambda.toDouble(), self.scalar_type()) && RunMap(row, inputs, out)) return out;
  if (out.defined()) return FallbackOf<at::_ops::softshrink_out>::Call(self, lambda, out);
  return out = FallbackOf<at::_ops::softshrink>::Call(self, lambda);
}
Tensor Softshrink(const Tensor& self, const at::Scalar& lambda) {
  Tensor out;
  return SoftshrinkOut(self, lambda, out);
}

Tensor& HeavisideOut(const Tensor& self, const Tensor& values, Tensor& out) {
  static const ops::Row& row = ops::RowOf("heaviside");
  TORCH_CHECK(self.scalar_type() == values.scalar_type() &&
                  (!out.defined() || out.scalar_type() == self.scalar_type()),
              "heaviside is not yet implemented for tensors with different dtypes.");
  const MapInput inputs[] = {self, values};
  if (RunMap(row, inputs, out)) return out;
  if (out.defined()) return FallbackOf<at::_ops::heaviside_out>::Call(self, values, out);
  return out = FallbackOf<at::_ops::heaviside>::Call(self, values);
}
Tensor Heaviside(const Tensor& self, const Tensor& values) {
  Tensor out;
  return HeavisideOut(self, values, out);
}

// The two halves of a dimension.
struct Halves {
  Halves(const Tensor& self, int64_t dim) {
    TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
    const int64_t at = at::maybe_wrap_dim(dim, self.dim()), size = self.size(at);
    TORCH_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", at, " is size ", size);
    value = self.narrow(at, 0, size / 2);
    gate = self.narrow(at, size / 2, size / 2);
  }
  Tensor value, gate;
};

Tensor Glu(const Tensor& self, int64_t dim) {
  static const ops::Row& row = ops::RowOf("xpud::glu");
  const Halves halves(self, dim);
  const MapInput inputs[] = {halves.value, halves.gate};
  Tensor out;
  return RunMap(row, inputs, out) ? out : FallbackOf<at::_ops::glu>::Call(self, dim);
}
Tensor GluBackward(const Tensor& gradient, const Tensor& self, int64_t dim) {
  static const ops::Row& row = ops::RowOf("xpud::glu_backward");
  if (!IsFloating(self) || gradient.scalar_type() != self.scalar_type())
    return FallbackOf<at::_ops::glu_backward>::Call(gradient, self, dim);
  Tensor out = at::empty(self.sizes(), self.options());
  const Halves of(self, dim), to(out, dim);
  const Tensor outs[] = {to.value, to.gate};
  const MapInput inputs[] = {gradient, of.value, of.gate};
  LaunchMap(row, *ToDType(self.scalar_type()), outs, inputs);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mse_loss", XPUD_FN(MseLoss));
  m.impl("mse_loss_backward", XPUD_FN(MseLossBackward));
  m.impl("smooth_l1_loss", XPUD_FN(SmoothL1Loss));
  m.impl("smooth_l1_loss_backward", XPUD_FN(SmoothL1LossBackward));
  m.impl("huber_loss", XPUD_FN(HuberLoss));
  m.impl("huber_loss_backward", XPUD_FN(HuberLossBackward));
  m.impl("binary_cross_entropy", XPUD_FN(BinaryCrossEntropy));
  m.impl("binary_cross_entropy_backward", XPUD_FN(BinaryCrossEntropyBackward));
  m.impl("multi_margin_loss", XPUD_FN(MultiMarginLoss));
  m.impl("multi_margin_loss_backward", XPUD_FN(MultiMarginLossBackward));
  m.impl("multilabel_margin_loss_forward", XPUD_FN(MultilabelMarginLoss));
  m.impl("multilabel_margin_loss_backward", XPUD_FN(MultilabelMarginLossBackward));
  m.impl("nll_loss2d_forward", XPUD_FN(NllLoss2d));
  m.impl("nll_loss2d_backward", XPUD_FN(NllLoss2dBackward));
  m.impl("log_sigmoid_forward", XPUD_FN(LogSigmoid));
  m.impl("log_sigmoid_backward", XPUD_FN(LogSigmoidBackward));
  m.impl("logit", XPUD_FN(Logit));
  m.impl("logit.out", XPUD_FN(LogitOut));
  m.impl("softshrink", XPUD_FN(Softshrink));
  m.impl("softshrink.out", XPUD_FN(SoftshrinkOut));
  m.impl("heaviside", XPUD_FN(Heaviside));
  m.impl("heaviside.out", XPUD_FN(HeavisideOut));
  m.impl("logit_backward", XPUD_FN(LogitBackward));
  m.impl("_prelu_kernel_backward", XPUD_FN(PreluBackward));
  m.impl("glu", XPUD_FN(Glu));
  m.impl("glu_backward", XPUD_FN(GluBackward));
}

}  // namespace
}  // namespace xpud::shim
