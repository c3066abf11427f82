// Steps of optimizers and gradient scaling: one command for all parameters of a group.
#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/ops/families/fused.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/list_command.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using at::TensorList;

bool IsScalar(const Tensor& tensor, const Tensor& like, bool any_float) {
  return IsOnDevice(tensor) && tensor.numel() == 1 && tensor.device() == like.device() &&
         (tensor.scalar_type() == at::kFloat || (any_float && tensor.scalar_type() == at::kDouble));
}

bool IsScalarIf(const OptionalTensor& tensor, const Tensor& like) {
  return !tensor.has_value() || !tensor->defined() || IsScalar(*tensor, like, /*any_float=*/false);
}

// Tensors in the order in memory of the parameter beside them. Those of another order are copied, and copied
// back at the end.
class Aligned {
 public:
  Tensor Read(const Tensor& tensor, const Tensor& like) {
    if (AreLinesAlike(tensor, like)) return tensor;
    return at::empty_strided(like.sizes(), like.strides(), tensor.options()).copy_(tensor);
  }
  Tensor Update(const Tensor& tensor, const Tensor& like) {
    Tensor aligned = Read(tensor, like);
    if (!aligned.is_same(tensor)) copies_.emplace_back(tensor, aligned);
    return aligned;
  }
  // A parameter with gaps. PyTorch's CPU kernels take it for a dense one, so it must not fall back.
  Tensor Dense(const Tensor& parameter) {
    if (parameter.is_non_overlapping_and_dense()) return parameter;
    return Update(parameter, at::empty(parameter.sizes(), parameter.options()));
  }
  void CopyBack() {
    for (auto& [tensor, aligned] : copies_) tensor.copy_(aligned);
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> copies_;
};

// One step of an optimizer.
struct Step {
  const ops::Row& row;
  TensorList self, grads;
  std::vector<TensorList> states;  // as the family has them; empty: absent
  TensorList steps;                // empty: the optimizer has none
  const Tensor* lr;                // nullptr: a number
  OptionalTensor grad_scale, found_inf;
  std::vector<ops::Number> attributes;

  bool HasGradScale() const { return grad_scale.has_value() && grad_scale->defined(); }
  bool HasFoundInf() const { return found_inf.has_value() && found_inf->defined(); }
};

bool IsServedTensor(const Tensor& tensor, const Tensor& self, const Tensor& first) {
  return IsOnDevice(tensor) && tensor.device() == first.device() &&
         tensor.scalar_type() == first.scalar_type() && tensor.sizes() == self.sizes() && !tensor.is_neg();
}

bool AreServed(const Step& step) {
  if (step.self.empty() || !IsKnown(step.row)) return false;
  const Tensor& first = step.self[0];
  if (!IsSupported(first.scalar_type(), ops::kFloatTypes) || step.grads.size() != step.self.size())
    return false;
  for (const TensorList& list : step.states)
    if (!list.empty() && list.size() != step.self.size()) return false;
  if (!step.steps.empty() && step.steps.size() != step.self.size()) return false;
  for (size_t i = 0; i < step.self.size(); ++i) {
    const Tensor& self = step.self[i];
    bool served = at::has_internal_overlap(self) != at::MemOverlap::Yes &&
                  IsServedTensor(self, self, first) && IsServedTensor(step.grads[i], self, first);
    for (const TensorList& list : step.states)
      served = served && (list.empty() || IsServedTensor(list[i], self, first));
    served = served && (step.steps.empty() || IsScalar(step.steps[i], first, /*any_float=*/false));
    if (!served) return false;
  }
  return IsScalarIf(step.grad_scale, first) && IsScalarIf(step.found_inf, first) &&
         (step.lr == nullptr || IsScalar(*step.lr, first, /*any_float=*/true));
}

// Returns false, and sends nothing, if the device has no kernel for the tensors. The lists are those of
// proto/ops/families/fused.cc.
bool Run(const Step& step) {
  if (!AreServed(step)) return false;
  const bool scaled = step.HasGradScale();
  const size_t unscaled = 1 + step.states.size(), grads = unscaled + 1;
  const size_t scalars = grads + 1 + (step.steps.empty() ? 0 : 1);
  const int device = DeviceIndexOf(step.self[0]);
  ListCommand command(step.row, *ToDType(step.self[0].scalar_type()), step.attributes, step.self.size());
  if (step.lr != nullptr) command.Share(scalars, Describe(*step.lr));
  if (scaled) command.Share(scalars + 1, Describe(*step.grad_scale));
  if (step.HasFoundInf()) command.Share(scalars + 2, Describe(*step.found_inf));
  Aligned aligned;
  std::vector<Tensor> kept;  // until sent
  const auto line = [&](size_t list, Tensor tensor) {
    command.Add(list, command.Line(tensor));
    kept.push_back(std::move(tensor));
  };
  for (size_t i = 0; i < step.self.size(); ++i) {
    if (step.self[i].numel() == 0) continue;
    const Tensor self = aligned.Dense(step.self[i]);
    command.Add(0, command.Line(self));
    for (size_t s = 0; s < step.states.size(); ++s)
      if (!step.states[s].empty()) line(1 + s, aligned.Update(step.states[s][i], self));
    const Tensor gradient = scaled ? aligned.Update(step.grads[i], self) : aligned.Read(step.grads[i], self);
    if (scaled) line(unscaled, gradient);
    line(grads, gradient);
    if (!step.steps.empty()) command.Add(grads + 1, Describe(step.steps[i]));
    command.EndElement(device);
  }
  command.Send(device);
  aligned.CopyBack();
  return true;
}

// ---- Adam

template <const char* kRow>
const ops::Row& RowNamed() {
  static const ops::Row& row = ops::RowOf(kRow);
  return row;
}
constexpr char kAdam[] = "xpud::fused_adam", kAdamW[] = "xpud::fused_adamw", kSgd[] = "xpud::fused_sgd",
               kAdagrad[] = "xpud::fused_adagrad", kUnscale[] = "xpud::unscale";

template <const char* kRow>
bool RunAdam(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
             TensorList max_exp_avg_sqs, TensorList state_steps, const Tensor* lr_tensor, double lr,
             double beta1, double beta2, double weight_decay, double eps, bool amsgrad, bool maximize,
             const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  const TensorList largest = amsgrad ? max_exp_avg_sqs : TensorList();
  if (amsgrad && largest.empty()) return false;
  return Run({.row = RowNamed<kRow>(),
              .self = self,
              .grads = grads,
              .states = {exp_avgs, exp_avg_sqs, largest},
              .steps = state_steps,
              .lr = lr_tensor,
              .grad_scale = grad_scale,
              .found_inf = found_inf,
              .attributes = ops::AttributesOf<ops::FusedAdamCall>({.lr = lr,
                                                                   .beta1 = beta1,
                                                                   .beta2 = beta2,
                                                                   .weight_decay = weight_decay,
                                                                   .eps = eps,
                                                                   .maximize = maximize})});
}

template <const char* kRow, class Op>
void Adam(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
          TensorList max_exp_avg_sqs, TensorList state_steps, double lr, double beta1, double beta2,
          double weight_decay, double eps, bool amsgrad, bool maximize, const OptionalTensor& grad_scale,
          const OptionalTensor& found_inf) {
  if (!RunAdam<kRow>(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, nullptr, lr, beta1,
                     beta2, weight_decay, eps, amsgrad, maximize, grad_scale, found_inf))
    FallbackOf<Op>::Call(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
                         weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

// A rate on the CPU is a number.
template <const char* kRow, class Op>
void AdamWithRate(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                  TensorList max_exp_avg_sqs, TensorList state_steps, const Tensor& lr, double beta1,
                  double beta2, double weight_decay, double eps, bool amsgrad, bool maximize,
                  const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  const bool number = lr.is_cpu();
  if (!RunAdam<kRow>(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, number ? nullptr : &lr,
                     number ? lr.item<double>() : 0, beta1, beta2, weight_decay, eps, amsgrad, maximize,
                     grad_scale, found_inf))
    FallbackOf<Op>::Call(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
                         weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

// ---- SGD

bool RunSgd(TensorList self, TensorList grads, TensorList momenta, const Tensor* lr_tensor,
            double weight_decay, double momentum, double lr, double dampening, bool nesterov, bool maximize,
            bool is_first_step, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  return Run({.row = RowNamed<kSgd>(),
              .self = self,
              .grads = grads,
              .states = {momenta},
              .steps = {},
              .lr = lr_tensor,
              .grad_scale = grad_scale,
              .found_inf = found_inf,
              .attributes = ops::AttributesOf<ops::FusedSgdCall>({.lr = lr,
                                                                  .weight_decay = weight_decay,
                                                                  .momentum = momentum,
                                                                  .dampening = dampening,
                                                                  .nesterov = nesterov,
                                                                  .maximize = maximize,
                                                                  .is_first_step = is_first_step})});
}

void Sgd(TensorList self, TensorList grads, TensorList momenta, double weight_decay, double momentum,
         double lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
         const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (!RunSgd(self, grads, momenta, nullptr, weight_decay, momentum, lr, dampening, nesterov, maximize,
              is_first_step, grad_scale, found_inf))
    FallbackOf<at::_ops::_fused_sgd_>::Call(self, grads, momenta, weight_decay, momentum, lr, dampening,
                                            nesterov, maximize, is_first_step, grad_scale, found_inf);
}

void SgdWithRate(TensorList self, TensorList grads, TensorList momenta, double weight_decay, double momentum,
                 const Tensor& lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
                 const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  const bool number = lr.is_cpu();
  if (!RunSgd(self, grads, momenta, number ? nullptr : &lr, weight_decay, momentum,
              number ? lr.item<double>() : 0, dampening, nesterov, maximize, is_first_step, grad_scale,
              found_inf))
    FallbackOf<at::_ops::_fused_sgd__tensor_lr>::Call(self, grads, momenta, weight_decay, momentum, lr,
                                                      dampening, nesterov, maximize, is_first_step,
                                                      grad_scale, found_inf);
}

// ---- Adagrad

bool RunAdagrad(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps,
                const Tensor* lr_tensor, double lr, double lr_decay, double weight_decay, double eps,
                bool maximize, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  return Run({.row = RowNamed<kAdagrad>(),
              .self = self,
              .grads = grads,
              .states = {state_sums},
              .steps = state_steps,
              .lr = lr_tensor,
              .grad_scale = grad_scale,
              .found_inf = found_inf,
              .attributes = ops::AttributesOf<ops::FusedAdagradCall>({.lr = lr,
                                                                      .lr_decay = lr_decay,
                                                                      .weight_decay = weight_decay,
                                                                      .eps = eps,
                                                                      .maximize = maximize})});
}

void Adagrad(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps, double lr,
             double lr_decay, double weight_decay, double eps, bool maximize,
             const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (!RunAdagrad(self, grads, state_sums, state_steps, nullptr, lr, lr_decay, weight_decay, eps, maximize,
                  grad_scale, found_inf))
    FallbackOf<at::_ops::_fused_adagrad_>::Call(self, grads, state_sums, state_steps, lr, lr_decay,
                                                weight_decay, eps, maximize, grad_scale, found_inf);
}

void AdagradWithRate(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps,
                     const Tensor& lr, double lr_decay, double weight_decay, double eps, bool maximize,
                     const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  const bool number = lr.is_cpu();
  if (!RunAdagrad(self, grads, state_sums, state_steps, number ? nullptr : &lr,
                  number ? lr.item<double>() : 0, lr_decay, weight_decay, eps, maximize, grad_scale,
                  found_inf))
    FallbackOf<at::_ops::_fused_adagrad__tensor_lr>::Call(self, grads, state_sums, state_steps, lr, lr_decay,
                                                          weight_decay, eps, maximize, grad_scale, found_inf);
}

// ---- gradient scaling

void Unscale(TensorList self, Tensor& found_inf, const Tensor& inv_scale) {
  if (self.empty()) return;
  const Tensor& first = self[0];
  const ops::Row& row = RowNamed<kUnscale>();
  bool served = IsKnown(row) && IsScalar(found_inf, first, false) && IsScalar(inv_scale, first, false);
  for (const Tensor& tensor : self)
    served = served && IsServedTensor(tensor, tensor, tensor) && tensor.device() == first.device() &&
             IsSupported(tensor.scalar_type(), ops::kFloatTypes);
  if (!served)
    return FallbackOf<at::_ops::_amp_foreach_non_finite_check_and_unscale_>::Call(self, found_inf, inv_scale);
  Aligned aligned;
  std::vector<Tensor> kept;
  ListCommand command(row, ops::DType::kFloat32, {}, self.size());
  command.Share(1, Describe(found_inf));
  command.Share(2, Describe(inv_scale));
  for (const Tensor& tensor : self) {
    if (tensor.numel() == 0) continue;
    const Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    kept.push_back(aligned.Update(tensor, dense));
    command.Add(0, command.Line(kept.back()));
    command.EndElement(DeviceIndexOf(first));
  }
  command.Send(DeviceIndexOf(first));
  aligned.CopyBack();
}

// Counts the step, then updates the scale and the count.
Tensor& UpdateScale(Tensor& self, Tensor& growth_tracker, const Tensor& found_inf, double growth,
                    double backoff, int64_t interval) {
  static const ops::Row &count = ops::RowOf("xpud::amp_count"), &scale = ops::RowOf("xpud::amp_scale");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt && growth_tracker.numel() == 1,
              "growth_tracker must be an int tensor of one element.");
  TORCH_CHECK(self.scalar_type() == at::kFloat && self.numel() == 1,
              "current_scale must be a float tensor of one element.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat && found_inf.numel() == 1,
              "found_inf must be a float tensor of one element.");
  if (!IsKnown(count) || !IsKnown(scale) || !IsOnDevice(self) || !IsOnDevice(growth_tracker) ||
      !IsOnDevice(found_inf))
    return FallbackOf<at::_ops::_amp_update_scale_>::Call(self, growth_tracker, found_inf, growth, backoff,
                                                          interval);
  const c10::IntArrayRef shape;
  const Tensor scalar = self.view(shape), tracker = growth_tracker.view(shape), found = found_inf.view(shape);
  LaunchMap(count, ops::DType::kFloat64, {&tracker, 1}, std::array<MapInput, 2>{tracker, found});
  const Tensor outs[] = {scalar, tracker};
  const auto number = [](auto value) { return MapInput(at::Scalar(value), false); };
  LaunchMap(scale, ops::DType::kFloat64, outs,
            std::array<MapInput, 5>{scalar, tracker, number(growth), number(backoff), number(interval)});
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", XPUD_FN(Adam<kAdam, at::_ops::_fused_adam_>));
  m.impl("_fused_adam_.tensor_lr", XPUD_FN(AdamWithRate<kAdam, at::_ops::_fused_adam__tensor_lr>));
  m.impl("_fused_adamw_", XPUD_FN(Adam<kAdamW, at::_ops::_fused_adamw_>));
  m.impl("_fused_adamw_.tensor_lr", XPUD_FN(AdamWithRate<kAdamW, at::_ops::_fused_adamw__tensor_lr>));
  m.impl("_fused_sgd_", XPUD_FN(Sgd));
  m.impl("_fused_sgd_.tensor_lr", XPUD_FN(SgdWithRate));
  m.impl("_fused_adagrad_", XPUD_FN(Adagrad));
  m.impl("_fused_adagrad_.tensor_lr", XPUD_FN(AdagradWithRate));
  m.impl("_amp_foreach_non_finite_check_and_unscale_", XPUD_FN(Unscale));
  m.impl("_amp_update_scale_", XPUD_FN(UpdateScale));
}

}  // namespace
}  // namespace xpud::shim
