// Batch norm and group norm, from reductions and maps. Statistics and their sums are f32, or f64 for f64
// inputs.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "sdk/torch/csrc/copy.h"
#include "sdk/torch/csrc/factories.h"
#include "sdk/torch/csrc/fallback.h"
#include "sdk/torch/csrc/map.h"
#include "sdk/torch/csrc/reduce.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

bool IsGiven(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

bool IsServed(const Tensor& tensor) {
  return IsOnDevice(tensor) && IsSupported(tensor.scalar_type(), ops::kFloatTypes) &&
         tensor.dim() <= ops::kMaxRank;
}
bool AreServed(std::initializer_list<const OptionalTensor*> tensors) {
  return std::ranges::all_of(tensors,
                             [](const auto* tensor) { return !IsGiven(*tensor) || IsServed(**tensor); });
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
  Tensor Sum(const Tensor& tensor) const { return at::sum(tensor, others, /*keepdim=*/false, type); }

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

// The batch's statistics. Updates the running ones, if given.
Statistics MakeStatistics(const Tensor& input, const Channels& channels, const OptionalTensor& running_mean,
                          const OptionalTensor& running_var, double momentum, double eps) {
  static const ops::Row &moments = ops::RowOf("xpud::var_mean"),
                        &row = ops::RowOf("xpud::batch_norm_statistics");
  const ops::Number correction = ops::Number::Real(0);
  const std::vector<Tensor> both = LaunchReductions(moments, input, channels.others, /*keepdim=*/false,
                                                    channels.compute(), channels.type, {&correction, 1});
  const Tensor &var = both[0], &mean = both[1];
  const double n = static_cast<double>(input.numel() / input.size(1));
  Tensor deviation = MakeEmpty(var.sizes(), channels.type, input.device());
  // Without running statistics, their places are written with values that nobody reads.
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
  const bool served = IsServed(input) && input.dim() >= 2 && input.numel() > 0 &&
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

// The gradients' sums over everything but channels: of the output's gradient, and of its product with the
// normalized input.
struct GradientSums {
  GradientSums(const Tensor& gradient, const Tensor& input, const Channels& channels, const PerChannel& mean,
               const PerChannel& deviation) {
    static const ops::Row& product = ops::RowOf("xpud::batch_norm");
    const Tensor products =
        at::empty_like(input, input.options().dtype(channels.type), input.suggest_memory_format());
    const MapInput inputs[] = {input, mean.get(), deviation.get(), gradient, MapInput(0.0, false)};
    LaunchMap(product, channels.compute(), {&products, 1}, inputs);
    by_weight = channels.Sum(products);
    by_bias = channels.Sum(gradient);
  }
  Tensor by_weight, by_bias;
};

std::tuple<Tensor, Tensor, Tensor> BatchNormBackward(
    const Tensor& gradient, const Tensor& input, const OptionalTensor& weight,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, const OptionalTensor& save_mean,
    const OptionalTensor& save_invstd, bool train, double eps, std::array<bool, 3> mask) {
  static const ops::Row& row = ops::RowOf("xpud::batch_norm_backward");
  const bool served =
      IsServed(gradient) && IsServed(input) && input.dim() >= 2 && input.numel() > 0 &&
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
  if (train || mask[1] || mask[2]) sums.emplace(gradient, input, channels, mean, deviation);
  Tensor out;
  if (mask[0]) {
    // In evaluation the statistics are constants, so their gradients vanish.
    const PerChannel by_bias(channels, train ? OptionalTensor(sums->by_bias) : std::nullopt, 0),
        by_weight(channels, train ? OptionalTensor(sums->by_weight) : std::nullopt, 0);
    const double n = static_cast<double>(input.numel() / input.size(1));
    out = MakeLike(input);
    const MapInput inputs[] = {gradient,    input,         mean.get(),      deviation.get(),
                               scale.get(), by_bias.get(), by_weight.get(), MapInput(1 / n, false)};
    LaunchMap(row, channels.compute(), {&out, 1}, inputs);
  }
  const at::ScalarType type = IsGiven(weight) ? weight->scalar_type() : channels.type;
  return {out, mask[1] ? sums->by_weight.to(type) : Tensor(), mask[2] ? sums->by_bias.to(type) : Tensor()};
}

// ---- group norm: layer norm of each group's rows, then scale and shift by channel ----

std::tuple<Tensor, Tensor, Tensor> GroupNorm(const Tensor& input, const OptionalTensor& weight,
                                             const OptionalTensor& bias, int64_t batch, int64_t channels,
                                             int64_t positions, int64_t groups, double eps) {
  const at::ScalarType statistics = IsGiven(weight) ? weight->scalar_type() : input.scalar_type();
  if (!IsServed(input) || input.numel() == 0) {
    return FallbackOf<at::_ops::native_group_norm>::Call(input, weight, bias, batch, channels, positions,
                                                         groups, eps);
  }
  const int64_t width = channels / groups * positions;
  const auto [rows, mean, rstd] =
      at::native_layer_norm(Contiguous(input).view({batch * groups, width}), width, {}, {}, eps);
  Tensor out = rows.view({batch, channels, positions});
  if (IsGiven(weight)) out = out.mul(weight->view({channels, 1}));
  if (IsGiven(bias)) out = out.add(bias->view({channels, 1}));
  return {out.view(input.sizes()).to(input.scalar_type()).contiguous(input.suggest_memory_format()),
          mean.view({batch, groups}).to(statistics), rstd.view({batch, groups}).to(statistics)};
}

std::tuple<Tensor, Tensor, Tensor> GroupNormBackward(const Tensor& gradient, const Tensor& input,
                                                     const Tensor& mean, const Tensor& rstd,
                                                     const OptionalTensor& weight, int64_t batch,
                                                     int64_t channels, int64_t positions, int64_t groups,
                                                     std::array<bool, 3> mask) {
  static const ops::Row& product = ops::RowOf("xpud::batch_norm");
  if (!IsServed(gradient) || !IsServed(input) || input.numel() == 0 ||
      gradient.scalar_type() != input.scalar_type()) {
    return FallbackOf<at::_ops::native_group_norm_backward>::Call(gradient, input, mean, rstd, weight, batch,
                                                                  channels, positions, groups, mask);
  }
  const at::ScalarType type = AccumulateType(input), result = IsGiven(weight) ? weight->scalar_type() : type;
  const int64_t width = channels / groups * positions;
  const Tensor g = Contiguous(gradient).view({batch, channels, positions}), x = Contiguous(input);
  const std::array<int64_t, 2> others = {0, 2};  // than channels
  std::tuple<Tensor, Tensor, Tensor> gradients;
  if (mask[0]) {
    const Tensor scaled = IsGiven(weight) ? g.mul(weight->view({channels, 1})).to(input.scalar_type()) : g;
    const Tensor dx = std::get<0>(at::native_layer_norm_backward(
        scaled.view({batch * groups, width}), x.view({batch * groups, width}), width,
        mean.reshape({batch * groups, 1}).to(type), rstd.reshape({batch * groups, 1}).to(type), {}, {},
        {true, false, false}));
    std::get<0>(gradients) = dx.view(input.sizes()).contiguous(input.suggest_memory_format());
  }
  if (mask[1]) {
    const std::array<int64_t, 3> grouped = {batch, groups, width};
    const Tensor products = at::empty(grouped, input.options().dtype(type));
    const Tensor rows = x.view(grouped), m = mean.reshape({batch, groups, 1}),
                 r = rstd.reshape({batch, groups, 1}), by = g.view(grouped);
    const MapInput inputs[] = {rows, m, r, by, MapInput(0.0, false)};
    LaunchMap(product, *ToDType(type), {&products, 1}, inputs);
    std::get<1>(gradients) = at::sum(products.view({batch, channels, positions}), others).to(result);
  }
  if (mask[2]) std::get<2>(gradients) = at::sum(g, others, /*keepdim=*/false, type).to(result);
  return gradients;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", TORCH_FN(BatchNorm));
  m.impl("native_batch_norm_backward", TORCH_FN(BatchNormBackward));
  m.impl("native_group_norm", TORCH_FN(GroupNorm));
  m.impl("native_group_norm_backward", TORCH_FN(GroupNormBackward));
}

}  // namespace
}  // namespace xpud::shim
