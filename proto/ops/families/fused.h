// Steps of optimizers, and unscaling of gradients, for lists of parameters in one command. Element i updates
// parameter i and its states in place; the row and attributes choose the method (kernels/families/fused.h has
// the formulas). All tensors of an element have its sizes and type, and are dense.
// Adam: self, exp_avgs, exp_avg_sqs, max_exp_avg_sqs?, unscaled? <- grads, state_steps, lr?, grad_scale?,
// found_inf?. SGD and Adagrad: likewise, with their own states.
// `unscaled` is written if there is a grad_scale: the gradients divided by it. If found_inf is not 0, nothing
// is written.
// Unscale: self, found_inf <- inv_scale. Multiplies self; sets found_inf to 1 if an element is not finite.
#pragma once

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct FusedAdamCall {
  double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0, eps = 0;
  bool maximize = false;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.OutputList("self", kUpdated);
    visitor.OutputList("exp_avgs", kUpdated);
    visitor.OutputList("exp_avg_sqs", kUpdated);
    visitor.OutputList("max_exp_avg_sqs", kUpdated | kOptional);
    visitor.OutputList("unscaled", kUpdated | kOptional);
    visitor.InputList("grads");
    visitor.InputList("state_steps");
    visitor.InputList("lr", kOptional);
    visitor.InputList("grad_scale", kOptional);
    visitor.InputList("found_inf", kOptional);
    visitor.Attribute(named.lr, "lr");
    visitor.Attribute(named.beta1, "beta1");
    visitor.Attribute(named.beta2, "beta2");
    visitor.Attribute(named.weight_decay, "weight_decay");
    visitor.Attribute(named.eps, "eps");
    visitor.Attribute(named.maximize, "maximize");
  }
};

template <typename T>
struct FusedSgdCall {
  double lr = 0, weight_decay = 0, momentum = 0, dampening = 0;
  bool nesterov = false, maximize = false, is_first_step = false;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.OutputList("self", kUpdated);
    visitor.OutputList("momentum_buffer_list", kUpdated | kOptional);
    visitor.OutputList("unscaled", kUpdated | kOptional);
    visitor.InputList("grads");
    visitor.InputList("lr", kOptional);
    visitor.InputList("grad_scale", kOptional);
    visitor.InputList("found_inf", kOptional);
    visitor.Attribute(named.lr, "lr");
    visitor.Attribute(named.weight_decay, "weight_decay");
    visitor.Attribute(named.momentum, "momentum");
    visitor.Attribute(named.dampening, "dampening");
    visitor.Attribute(named.nesterov, "nesterov");
    visitor.Attribute(named.maximize, "maximize");
    visitor.Attribute(named.is_first_step, "is_first_step");
  }
};

template <typename T>
struct FusedAdagradCall {
  double lr = 0, lr_decay = 0, weight_decay = 0, eps = 0;
  bool maximize = false;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.OutputList("self", kUpdated);
    visitor.OutputList("state_sums", kUpdated);
    visitor.OutputList("unscaled", kUpdated | kOptional);
    visitor.InputList("grads");
    visitor.InputList("state_steps");
    visitor.InputList("lr", kOptional);
    visitor.InputList("grad_scale", kOptional);
    visitor.InputList("found_inf", kOptional);
    visitor.Attribute(named.lr, "lr");
    visitor.Attribute(named.lr_decay, "lr_decay");
    visitor.Attribute(named.weight_decay, "weight_decay");
    visitor.Attribute(named.eps, "eps");
    visitor.Attribute(named.maximize, "maximize");
  }
};

template <typename T>
struct UnscaleCall {
  static constexpr void Visit(auto&, auto& visitor) {
    visitor.OutputList("self", kUpdated);
    visitor.OutputList("found_inf", kUpdated);
    visitor.InputList("inv_scale");
  }
};

}  // namespace xpud::ops
