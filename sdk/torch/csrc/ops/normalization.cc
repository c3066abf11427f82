// Batch norm and group norm, from reductions and maps: a reduction gives both statistics or both sums of
// gradients, a map all elements. Statistics and their sums are f32, or f64 for f64 inputs.
#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <torch/library.h>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/engines/reduce.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;

bool IsFloating(const Tensor& tensor) { return IsServed(tensor, ops::kFloatTypes); }
bool AreServed(std::initializer_list<const OptionalTensor*> tensors) {
  return std::ranges::all_of(tensors,
                             [](const auto* tensor) { return !IsGiven(*tensor) || IsFloating(**tensor); });
}

at::ScalarType AccumulateType(const Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// ---- batch norm ----

// The input [N, C, ...] and its dimensions.
struct Channels {
  explicit Channels(const Tensor& input) : type(AccumulateType(input)) {
    for (int64_t d = 0; d < input.dim(); ++d) {
      if (d != 1) others.push_back(d);
      shape.push_back(d == 1 ? input.size(1) : 1);
    }
  }
  ops::DType compute() const { return *ToDType(type); }
  // A tensor with an element for each channel, for maps over the input.
  Tensor Broadcast(const Tensor& tensor) const { return tensor.view(shape); }

  at::ScalarType type;
  c10::SmallVector<int64_t, ops::kMaxRank> others, shape;
};

// An input of a map: a tensor with an element for each channel, or a number if it is not given.
class PerChannel {
 public:
  PerChannel(const Channels& channels, const OptionalTensor& tensor, double otherwise) : number_(otherwise) {
    if (IsGiven(tensor)) tensor_ = channels.Broadcast(*tensor);
  }
  MapInput get() const { return tensor_.defined() ? MapInput(tensor_) : MapInput(number_, false); }

 private:
  Tensor tensor_;
  at::Scalar number_;
};

Tensor MakeLike(const Tensor& input) { return at::empty_like(input, input.suggest_memory_format()); }

struct Statistics {
  Tensor mean, deviation;  // deviation: its reciprocal
};

// The mean of `input` and the reciprocal of its deviation over `dims`.
Statistics MomentsOf(const Tensor& input, c10::IntArrayRef dims, bool keepdim, at::ScalarType type,
                     double eps) {
  static const ops::Row& row = ops::RowOf("xpud::mean_rstd");
  const ops::Number least = ops::Number::Real(eps);
  const std::vector<Tensor> both =
      LaunchReductions(row, input, dims, keepdim, *ToDType(type), type, {&least, 1});
  return {both[0], both[1]};
}

// Sums over `dims` of a gradient, and of its product with the normalized input.
struct GradientSums {
  GradientSums(const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& deviation,
               c10::IntArrayRef dims, bool keepdim, at::ScalarType type) {
    static const ops::Row& row = ops::RowOf("xpud::norm_sums");
    const Tensor inputs[] = {gradient, input, mean, deviation};
    std::vector<Tensor> both = LaunchReductions(row, inputs, dims, keepdim, *ToDType(type), type);
    by_bias = std::move(both[0]);
    by_weight = std::move(both[1]);
  }
  Tensor by_bias, by_weight;
};

// The batch's statistics. Updates the running ones, if given.
Statistics MakeStatistics(const Tensor& input, const Channels& channels, const OptionalTensor& running_mean,
                          const OptionalTensor& running_var, double momentum, double eps) {
  if (!IsGiven(running_mean) && !IsGiven(running_var))
    return MomentsOf(input, channels.others, /*keepdim=*/false, channels.type, eps);
  static const ops::Row &moments = ops::RowOf("xpud::var_mean"),
                        &row = ops::RowOf("xpud::batch_norm_statistics");
  const ops::Number correction = ops::Number::Real(0);
  const std::vector<Tensor> both = LaunchReductions(moments, input, channels.others, /*keepdim=*/false,
                                                    channels.compute(), channels.type, {&correction, 1});
  const Tensor &var = both[0], &mean = both[1];
  const double n = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
  Tensor deviation = MakeEmpty(var.sizes(), channels.type, input.device());
  // The place of one that is not given is written with values that nobody reads.
  const Tensor new_mean = IsGiven(running_mean) ? *running_mean : at::empty_like(var);
  const Tensor new_var = IsGiven(running_var) ? *running_var : at::empty_like(var);
  const MapInput inputs[] = {var,
                             mean,
                             IsGiven(running_mean) ? MapInput(new_mean) : MapInput(0.0, false),
                             IsGiven(running_var) ? MapInput(new_var) : MapInput(0.0, false),
                             MapInput(momentum, false),
                             MapInput(eps, false),
                             MapInput(n / (n - 1), false)};
  const Tensor outs[] = {deviation, new_mean, new_var};
  LaunchMap(row, channels.compute(), outs, inputs);
  return {mean, deviation};
}

std::tuple<Tensor, Tensor, Tensor> BatchNorm(const Tensor& input, const OptionalTensor& weight,
                                             const OptionalTensor& bias, const OptionalTensor& running_mean,
                                             const OptionalTensor& running_var, bool training,
                                             double momentum, double eps) {
  static const ops::Row &normalize = ops::RowOf("xpud::batch_norm"),
                        &infer = ops::RowOf("xpud::batch_norm_inference");
  const bool served = IsFloating(input) && input.dim() >= 2 && input.numel() > 0 &&
                      AreServed({&weight, &bias, &running_mean, &running_var}) &&
                      (training || (IsGiven(running_mean) && IsGiven(running_var)));
  if (!served) {
    return FallbackOf<at::_ops::native_batch_norm>::Call(input, weight, bias, running_mean, running_var,
                                                         training, momentum, eps);
  }
  const Channels channels(input);
  const PerChannel scale(channels, weight, 1), shift(channels, bias, 0);
  const Tensor out = MakeLike(input);
  if (!training) {
    const PerChannel mean(channels, running_mean, 0), var(channels, running_var, 1);
    const MapInput inputs[] = {input, mean.get(), var.get(), scale.get(), shift.get(), MapInput(eps, false)};
    LaunchMap(infer, channels.compute(), {&out, 1}, inputs);
    const Tensor none = at::empty({0}, input.options().dtype(channels.type));
    return {out, none, none};
  }
  const Statistics s = MakeStatistics(input, channels, running_mean, running_var, momentum, eps);
  const PerChannel mean(channels, s.mean, 0), deviation(channels, s.deviation, 1);
  const MapInput inputs[] = {input, mean.get(), deviation.get(), scale.get(), shift.get()};
  LaunchMap(normalize, channels.compute(), {&out, 1}, inputs);
  return {out, s.mean, s.deviation};
}

std::tuple<Tensor, Tensor, Tensor> BatchNormBackward(
    const Tensor& gradient, const Tensor& input, const OptionalTensor& weight,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, const OptionalTensor& save_mean,
    const OptionalTensor& save_invstd, bool train, double eps, std::array<bool, 3> mask) {
  static const ops::Row& row = ops::RowOf("xpud::batch_norm_backward");
  const bool served =
      IsFloating(gradient) && IsFloating(input) && input.dim() >= 2 && input.numel() > 0 &&
      AreServed({&weight, &running_mean, &running_var, &save_mean, &save_invstd}) &&
      (train ? IsGiven(save_mean) && IsGiven(save_invstd) : IsGiven(running_mean) && IsGiven(running_var));
  if (!served) {
    return FallbackOf<at::_ops::native_batch_norm_backward>::Call(
        gradient, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask);
  }
  const Channels channels(input);
  const OptionalTensor invstd =
      train ? save_invstd : OptionalTensor(at::rsqrt(running_var->to(channels.type) + eps));
  const PerChannel mean(channels, train ? save_mean : running_mean, 0), deviation(channels, invstd, 1),
      scale(channels, weight, 1);
  std::optional<GradientSums> sums;
  if (train || mask[1] || mask[2]) {
    sums.emplace(gradient, input, channels.Broadcast(train ? *save_mean : *running_mean),
                 channels.Broadcast(*invstd), channels.others, /*keepdim=*/false, channels.type);
  }
  Tensor out;
  if (mask[0]) {
    // In evaluation the statistics are constants, so their gradients vanish.
    const PerChannel by_bias(channels, train ? OptionalTensor(sums->by_bias) : std::nullopt, 0),
        by_weight(channels, train ? OptionalTensor(sums->by_weight) : std::nullopt, 0);
    const double n = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
    out = MakeLike(input);
    const MapInput inputs[] = {gradient,    input,         mean.get(),      deviation.get(),
                               scale.get(), by_bias.get(), by_weight.get(), MapInput(1 / n, false)};
    LaunchMap(row, channels.compute(), {&out, 1}, inputs);
  }
  const at::ScalarType type = IsGiven(weight) ? weight->scalar_type() : channels.type;
  return {out, mask[1] ? sums->by_weight.to(type) : Tensor(), mask[2] ? sums->by_bias.to(type) : Tensor()};
}

// ---- group norm ----

// How an input is viewed: [N, groups, channels of a group, positions]. If channels are the innermost
// dimension, it is [N, 1, channels, positions], and statistics have an element for each channel, so that
// kernels take all channels together.
struct Groups {
  Groups(const Tensor& input, int64_t batch, int64_t channels, int64_t positions, int64_t groups)
      : grouped{batch, groups, channels / groups, positions},
        last(input.suggest_memory_format() != at::MemoryFormat::Contiguous && input.stride(1) == 1),
        sizes{batch, last ? 1 : groups, last ? channels : channels / groups, positions} {}
  // A view, or a copy if the strides allow none.
  Tensor Of(const Tensor& tensor) const {
    return at::detail::computeStride(tensor.sizes(), tensor.strides(), c10::IntArrayRef(sizes)).has_value()
               ? tensor.view(sizes)
               : Contiguous(tensor).view(sizes);
  }
  Tensor OfStatistics(const Tensor& tensor) const {
    Tensor each = tensor.reshape({grouped[0], grouped[1], 1, 1});
    if (!last) return each;
    return each.expand({grouped[0], grouped[1], grouped[2], 1}).reshape({sizes[0], 1, sizes[2], 1});
  }
  Tensor OfChannels(const Tensor& tensor) const { return tensor.reshape({1, sizes[1], sizes[2], 1}); }
  // What is left of a view after its positions, by groups.
  Tensor ByGroups(const Tensor& tensor) const { return tensor.view({grouped[0], grouped[1], grouped[2], 1}); }
  double elements() const { return static_cast<double>(grouped[2] * grouped[3]); }

  std::array<int64_t, 4> grouped;
  bool last;
  std::array<int64_t, 4> sizes;
};

// The statistics of each group of the view `x`.
Statistics MomentsOfGroups(const Tensor& x, const Groups& groups, at::ScalarType type, double eps) {
  if (!groups.last) return MomentsOf(x, {2, 3}, /*keepdim=*/true, type, eps);
  static const ops::Row& row = ops::RowOf("xpud::var_mean");
  const ops::Number correction = ops::Number::Real(0);
  const auto moments = [&](const Tensor& tensor, int64_t dim) {
    return LaunchReductions(row, tensor, dim, /*keepdim=*/true, *ToDType(type), type, {&correction, 1});
  };
  // Of channels, then of their means: the variance is the mean of variances and the variance of means.
  const std::vector<Tensor> channels = moments(x, 3), means = moments(groups.ByGroups(channels[1]), 2);
  const Tensor var = groups.ByGroups(channels[0]).mean(2, /*keepdim=*/true).add_(means[0]);
  return {means[1], var.add_(eps).rsqrt_()};
}

// A parameter's element for each channel, or a number if it is not given.
class GroupParameter {
 public:
  GroupParameter(const Groups& groups, const OptionalTensor& tensor, double otherwise) : number_(otherwise) {
    if (IsGiven(tensor)) tensor_ = groups.OfChannels(*tensor);
  }
  MapInput get() const { return tensor_.defined() ? MapInput(tensor_) : MapInput(number_, false); }

 private:
  Tensor tensor_;
  at::Scalar number_;
};

std::tuple<Tensor, Tensor, Tensor> GroupNorm(const Tensor& input, const OptionalTensor& weight,
                                             const OptionalTensor& bias, int64_t batch, int64_t channels,
                                             int64_t positions, int64_t groups, double eps) {
  static const ops::Row& normalize = ops::RowOf("xpud::batch_norm");
  const at::ScalarType given = IsGiven(weight) ? weight->scalar_type() : input.scalar_type();
  if (!IsFloating(input) || input.numel() == 0 || !AreServed({&weight, &bias})) {
    return FallbackOf<at::_ops::native_group_norm>::Call(input, weight, bias, batch, channels, positions,
                                                         groups, eps);
  }
  const at::ScalarType type = AccumulateType(input);
  const Groups grouped(input, batch, channels, positions, groups);
  const Tensor x = grouped.Of(input), out = MakeLike(input), y = out.view(grouped.sizes);
  const Statistics s = MomentsOfGroups(x, grouped, type, eps);
  const Tensor mean = grouped.OfStatistics(s.mean), deviation = grouped.OfStatistics(s.deviation);
  const GroupParameter scale(grouped, weight, 1), shift(grouped, bias, 0);
  const MapInput inputs[] = {x, mean, deviation, scale.get(), shift.get()};
  LaunchMap(normalize, *ToDType(type), {&y, 1}, inputs);
  return {out, s.mean.view({batch, groups}).to(given), s.deviation.view({batch, groups}).to(given)};
}

// Sums over the channels of a group of what `sums` has for each channel, times `weight`; as statistics.
std::vector<Tensor> SumsOfGroups(const GradientSums& sums, const OptionalTensor& weight, const Groups& groups,
                                 at::ScalarType type) {
  static const ops::Row& row = ops::RowOf("xpud::weighted_sums");
  const std::array<int64_t, 1> dim = {2};
  const Tensor by_bias = groups.ByGroups(sums.by_bias), by_weight = groups.ByGroups(sums.by_weight);
  if (!IsGiven(weight))
    return {groups.OfStatistics(by_bias.sum(dim, true)), groups.OfStatistics(by_weight.sum(dim, true))};
  const Tensor inputs[] = {by_bias, by_weight, weight->reshape({1, groups.grouped[1], groups.grouped[2], 1})};
  std::vector<Tensor> both = LaunchReductions(row, inputs, dim, /*keepdim=*/true, *ToDType(type), type);
  for (Tensor& each : both) each = groups.OfStatistics(each);
  return both;
}

std::tuple<Tensor, Tensor, Tensor> GroupNormBackward(const Tensor& gradient, const Tensor& input,
                                                     const Tensor& mean, const Tensor& rstd,
                                                     const OptionalTensor& weight, int64_t batch,
                                                     int64_t channels, int64_t positions, int64_t groups,
                                                     std::array<bool, 3> mask) {
  static const ops::Row& row = ops::RowOf("xpud::group_norm_backward");
  if (!IsFloating(gradient) || !IsFloating(input) || input.numel() == 0 ||
      gradient.scalar_type() != input.scalar_type() || !AreServed({&weight})) {
    return FallbackOf<at::_ops::native_group_norm_backward>::Call(gradient, input, mean, rstd, weight, batch,
                                                                  channels, positions, groups, mask);
  }
  const at::ScalarType type = AccumulateType(input), result = IsGiven(weight) ? weight->scalar_type() : type;
  const Groups grouped(input, batch, channels, positions, groups);
  const Tensor g = grouped.Of(gradient), x = grouped.Of(input), m = grouped.OfStatistics(mean),
               r = grouped.OfStatistics(rstd);
  const GradientSums sums(g, x, m, r, {3}, /*keepdim=*/true, type);
  std::tuple<Tensor, Tensor, Tensor> gradients;
  if (mask[0]) {
    const std::vector<Tensor> of_groups = SumsOfGroups(sums, weight, grouped, type);
    const Tensor out = MakeLike(input), dx = out.view(grouped.sizes);
    const GroupParameter scale(grouped, weight, 1);
    const MapInput inputs[] = {
        g, x, m, r, scale.get(), of_groups[0], of_groups[1], MapInput(1 / grouped.elements(), false)};
    LaunchMap(row, *ToDType(type), {&dx, 1}, inputs);
    std::get<0>(gradients) = out;
  }
  const auto by_channel = [&](const Tensor& each) {
    return (batch == 1 ? each.view({channels}) : each.view({batch, channels}).sum(0)).to(result);
  };
  if (mask[1]) std::get<1>(gradients) = by_channel(sums.by_weight);
  if (mask[2]) std::get<2>(gradients) = by_channel(sums.by_bias);
  return gradients;
}

// ---- the same operators by the names that exported programs have ----

using Three = std::tuple<Tensor, Tensor, Tensor>;

Three BatchNormLegit(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                     Tensor& mean, Tensor& var, bool training, double momentum, double eps) {
  return at::native_batch_norm(input, weight, bias, mean, var, training, momentum, eps);
}
Three BatchNormWithoutStatistics(const Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, bool training, double momentum, double eps) {
  return at::native_batch_norm(input, weight, bias, {}, {}, training, momentum, eps);
}
// Nothing is reserved.
std::tuple<Tensor, Tensor, Tensor, Tensor> BatchNormWithUpdate(const Tensor& input,
                                                               const OptionalTensor& weight,
                                                               const OptionalTensor& bias, Tensor& mean,
                                                               Tensor& var, double momentum, double eps) {
  auto [out, save_mean, save_deviation] =
      at::native_batch_norm(input, weight, bias, mean, var, /*training=*/true, momentum, eps);
  return {out, save_mean, save_deviation, at::empty({0}, input.options().dtype(at::kByte))};
}
Three BatchNormUpdateBackward(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                              const OptionalTensor& mean, const OptionalTensor& var,
                              const OptionalTensor& save_mean, const OptionalTensor& save_var, bool update,
                              double eps, std::array<bool, 3> mask, const Tensor& /*reserve*/) {
  return at::native_batch_norm_backward(gradient, input, weight, mean, var, save_mean, save_var, update, eps,
                                        mask);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_native_batch_norm_legit", XPUD_FN(BatchNormLegit));
  m.impl("_native_batch_norm_legit.no_stats", XPUD_FN(BatchNormWithoutStatistics));
  m.impl("_batch_norm_with_update", XPUD_FN(BatchNormWithUpdate));
  m.impl("batch_norm_backward", XPUD_FN(BatchNormUpdateBackward));
  m.impl("native_batch_norm", XPUD_FN(BatchNorm));
  m.impl("native_batch_norm_backward", XPUD_FN(BatchNormBackward));
  m.impl("native_group_norm", XPUD_FN(GroupNorm));
  m.impl("native_group_norm_backward", XPUD_FN(GroupNormBackward));
}

}  // namespace
}  // namespace xpud::shim
