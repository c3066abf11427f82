#include "sdk/torch/csrc/forward_mode.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

namespace xpud::shim {
namespace {

using at::Tensor;

bool HasTangent(const Tensor& tensor) { return tensor.defined() && tensor._fw_grad(/*level=*/0).defined(); }
bool NeedsGraph(const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

// PyTorch's kernel of an operator for backward mode, which the one registered here takes the place of.
class Generated {
 public:
  // REQUIRES: the operator has a kernel of ours, and none of ours for autograd.
  explicit Generated(const char* name)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "")),
        kernel_(op_.getComputedKernelForDispatchKey(c10::DispatchKey::AutogradPrivateUse1)) {}

  template <typename... Arguments>
  torch::jit::Stack Call(c10::DispatchKeySet keys, const Arguments&... arguments) const {
    torch::jit::Stack stack;
    torch::jit::push(stack, arguments...);
    kernel_.callBoxed(op_, keys, &stack);
    return stack;
  }

 private:
  const c10::OperatorHandle op_;
  const c10::SafeKernelFunction kernel_;
};

const Generated& GeneratedLinear() {
  static const auto* const kernel = new Generated("aten::linear");
  return *kernel;
}
const Generated& GeneratedLinearBackward() {
  static const auto* const kernel = new Generated("aten::linear_backward");
  return *kernel;
}

Tensor Linear(c10::DispatchKeySet keys, const Tensor& input, const Tensor& weight,
              const std::optional<Tensor>& bias) {
  const Tensor addend = bias.value_or(Tensor());
  if (HasTangent(input) || HasTangent(weight) || HasTangent(addend)) {
    const Tensor product = at::matmul(input, weight.t());
    return addend.defined() ? product.add(addend) : product;
  }
  if (!at::GradMode::is_enabled() || !(NeedsGraph(input) || NeedsGraph(weight) || NeedsGraph(addend))) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return at::_ops::linear::redispatch(keys & c10::after_autograd_keyset, input, weight, bias);
  }
  return GeneratedLinear().Call(keys, input, weight, bias).back().toTensor();
}

std::tuple<Tensor, Tensor, Tensor> LinearBackward(c10::DispatchKeySet keys, const Tensor& self,
                                                  const Tensor& gradient, const Tensor& weight,
                                                  std::array<bool, 3> mask) {
  if (HasTangent(self) || HasTangent(gradient) || HasTangent(weight)) {
    Tensor by_input, by_weight, by_bias;
    const Tensor rows = gradient.reshape({-1, gradient.size(-1)});
    if (mask[0]) by_input = at::matmul(gradient, weight);
    if (mask[1]) by_weight = rows.t().matmul(self.reshape({-1, self.size(-1)}));
    if (mask[2]) by_bias = rows.sum(0);
    return {by_input, by_weight, by_bias};
  }
  if (!at::GradMode::is_enabled() || !(NeedsGraph(self) || NeedsGraph(gradient) || NeedsGraph(weight))) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return at::_ops::linear_backward::redispatch(keys & c10::after_autograd_keyset, self, gradient, weight,
                                                 mask);
  }
  const torch::jit::Stack results = GeneratedLinearBackward().Call(
      keys, self, gradient, weight, c10::List<bool>({mask[0], mask[1], mask[2]}));
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

}  // namespace

void RegisterForwardMode() {
  (void)GeneratedLinear();  // before ours take their places
  (void)GeneratedLinearBackward();
  static auto* const library = new torch::Library(torch::Library::IMPL, "aten",
                                                  c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  library->impl("linear", TORCH_FN(Linear));
  library->impl("linear_backward", TORCH_FN(LinearBackward));
}

}  // namespace xpud::shim
