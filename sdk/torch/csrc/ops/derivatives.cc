#include "sdk/torch/csrc/ops/derivatives.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/autograd.h>
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
    CallBoxed(keys, &stack);
    return stack;
  }
  void CallBoxed(c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    kernel_.callBoxed(op_, keys, stack);
  }

 private:
  const c10::OperatorHandle op_;
  const c10::SafeKernelFunction kernel_;
};

// ---- linear ----

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

// ---- attention ----

// The arguments of the operator that computes attention's gradients, in their order.
struct AttentionArguments {
  explicit AttentionArguments(c10::ArrayRef<c10::IValue> values)
      : gradient(values[0].toTensor()),
        inputs{values[1].toTensor(), values[2].toTensor(), values[3].toTensor(), values[4].toTensor()},
        wanted(values[5].toBoolList()),
        dropout(values[12].toDouble()),
        is_causal(values[13].toBool()),
        scale(values[16].toOptional<double>()) {}

  Tensor gradient;
  std::array<Tensor, 4> inputs;  // query, key, value, mask
  c10::List<bool> wanted;
  double dropout;
  bool is_causal;
  std::optional<double> scale;
};

// The gradients as part of a graph: those of ATen's composition, computed again.
std::array<Tensor, 4> ComposedGradients(const AttentionArguments& arguments) {
  std::array<Tensor, 4> inputs;
  torch::autograd::variable_list wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& given = arguments.inputs[i];
    if (!given.defined()) continue;
    // A view is a new node, so gradients end here even if one argument depends on another.
    inputs[i] = given.requires_grad() ? given.view_as(given) : given;
    if (arguments.wanted[i] && given.requires_grad()) wanted.push_back(inputs[i]);
  }
  const bool groups = inputs[0].size(1) != inputs[1].size(1);
  const std::optional<Tensor> mask = inputs[3].defined() ? std::optional(inputs[3]) : std::nullopt;
  const Tensor out = std::get<0>(at::_scaled_dot_product_attention_math(
      inputs[0], inputs[1], inputs[2], mask, 0, arguments.is_causal, std::nullopt, arguments.scale, groups));
  const torch::autograd::variable_list found =
      torch::autograd::grad({out}, wanted, {arguments.gradient}, /*retain_graph=*/true, /*create_graph=*/true,
                            /*allow_unused=*/true);
  std::array<Tensor, 4> gradients;
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && arguments.wanted[i] && arguments.inputs[i].requires_grad())
      gradients[i] = found[next++];
  return gradients;
}

const Generated& GeneratedAttentionBackward() {
  static const auto* const kernel =
      new Generated("aten::_scaled_dot_product_fused_attention_overrideable_backward");
  return *kernel;
}

// Dropout is left to PyTorch's kernel, whose second derivative is an error: which elements were dropped is
// known only to the kernel.
void AttentionBackward(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const c10::ArrayRef<c10::IValue> values(stack->data() + (stack->size() - count), count);
  const AttentionArguments arguments(values);
  bool graph = NeedsGraph(arguments.gradient);
  for (const Tensor& input : arguments.inputs) graph |= NeedsGraph(input);
  if (!at::GradMode::is_enabled() || !graph) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
  if (arguments.dropout > 0) return GeneratedAttentionBackward().CallBoxed(keys, stack);
  const std::array<Tensor, 4> gradients = ComposedGradients(arguments);
  torch::jit::drop(*stack, count);
  for (const Tensor& gradient : gradients) stack->emplace_back(gradient);
}

}  // namespace

void RegisterDerivatives() {
  (void)GeneratedLinear();  // before ours take their places
  (void)GeneratedLinearBackward();
  (void)GeneratedAttentionBackward();
  static auto* const library = new torch::Library(torch::Library::IMPL, "aten",
                                                  c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  library->impl("linear", TORCH_FN(Linear));
  library->impl("linear_backward", TORCH_FN(LinearBackward));
  library->impl("_scaled_dot_product_fused_attention_overrideable_backward",
                torch::CppFunction::makeFromBoxedFunction<&AttentionBackward>());
}

}  // namespace xpud::shim
