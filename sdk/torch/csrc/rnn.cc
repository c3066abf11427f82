// Cells of LSTM and GRU, computed like CUDA's kernels: 16-bit gates in f32, rounded once. Formulas:
// Hochreiter and Schmidhuber 1997 with Gers et al.'s forget gate; Cho et al. 2014, reset after the product.
#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <torch/library.h>

#include "sdk/torch/csrc/command.h"

namespace xpud::shim {
namespace {

using at::Tensor;

constexpr int64_t kLstmGates = 4, kGruGates = 3, kGruSaved = 5;

at::ScalarType ComputeType(const Tensor& tensor) {
  return c10::isReducedFloatingType(tensor.scalar_type()) ? at::kFloat : tensor.scalar_type();
}

void CheckCell(at::CheckedFrom cell, int64_t gates, const Tensor& input_gates, const Tensor& hidden_gates,
               const Tensor& state, const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const at::TensorArg input(input_gates, "input_gates", 1), hidden(hidden_gates, "hidden_gates", 2),
      previous(state, "prev_hidden", 3);
  at::checkDim(cell, input, 2);
  at::checkSameSize(cell, input, hidden);
  at::checkDim(cell, previous, 2);
  at::checkNumel(cell, previous, input_gates.size(0) * input_gates.size(1) / gates);
  at::checkAllSameType(cell, {input, hidden, previous});
  TORCH_CHECK(IsGiven(input_bias) == IsGiven(hidden_bias), cell,
              ": only one bias is given; give both or none");
  if (!IsGiven(input_bias)) return;
  const at::TensorArg first(*input_bias, "input_bias", 4), second(*hidden_bias, "hidden_bias", 5);
  at::checkDim(cell, first, 1);
  at::checkNumel(cell, first, input_gates.size(1));
  at::checkSameSize(cell, first, second);
  at::checkAllSameType(cell, {input, first, second});
}

// Splits the columns of `tensor` into `count` parts.
std::vector<Tensor> Parts(const Tensor& tensor, int64_t count) { return tensor.chunk(count, 1); }

Tensor OneMinus(const Tensor& tensor) { return at::rsub(tensor, 1); }

// s(1 - s) and 1 - t^2: the derivatives, from the function's values.
Tensor SigmoidSlope(const Tensor& value) { return OneMinus(value).mul_(value); }
Tensor TanhSlope(const Tensor& value) { return OneMinus(value.square()); }

Tensor BiasGradient(const Tensor& gates, bool has_bias) { return has_bias ? gates.sum(0) : Tensor(); }

// ---- LSTM: gates are input, forget, cell, output ----

// Returns the new hidden state, the new cell state, and the gates after their activation functions.
std::tuple<Tensor, Tensor, Tensor> LstmCell(const Tensor& input_gates, const Tensor& hidden_gates,
                                            const Tensor& cx, const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  CheckCell("_thnn_fused_lstm_cell", kLstmGates, input_gates, hidden_gates, cx, input_bias, hidden_bias);
  const at::ScalarType type = input_gates.scalar_type();
  Tensor sum = at::add(input_gates.to(ComputeType(input_gates)), hidden_gates);
  if (IsGiven(input_bias)) sum.add_(*input_bias).add_(*hidden_bias);
  auto gates = Parts(sum, kLstmGates);
  for (const int sigmoid : {0, 1, 3}) gates[sigmoid].sigmoid_();
  gates[2].tanh_();
  const Tensor cy = at::mul(gates[1], cx).add_(at::mul(gates[0], gates[2]));
  const Tensor hy = at::tanh(cy).mul_(gates[3]);
  return {hy.to(type), cy.to(type), sum.to(type)};
}

// Returns the gradients of the gates, the previous cell state and the bias.
std::tuple<Tensor, Tensor, Tensor> LstmCellBackward(const OptionalTensor& grad_hy,
                                                    const OptionalTensor& grad_cy, const Tensor& cx,
                                                    const Tensor& cy, const Tensor& workspace,
                                                    bool has_bias) {
  if (!IsGiven(grad_hy) && !IsGiven(grad_cy)) return {};
  TORCH_CHECK(workspace.dim() == 2 && workspace.numel() == kLstmGates * cx.numel() &&
                  cx.sizes() == cy.sizes() && (!IsGiven(grad_hy) || grad_hy->sizes() == cx.sizes()) &&
                  (!IsGiven(grad_cy) || grad_cy->sizes() == cx.sizes()),
              "_thnn_fused_lstm_cell_backward: the sizes of states, gradients and workspace do not fit");
  const at::ScalarType type = workspace.scalar_type(), compute = ComputeType(workspace);
  const auto gates = Parts(workspace.to(compute), kLstmGates);
  const Tensor tanh_cy = at::tanh(cy.to(compute));
  Tensor output = at::zeros_like(tanh_cy), cell;
  if (IsGiven(grad_hy)) {
    const Tensor gradient = grad_hy->to(compute);
    output = at::mul(gradient, tanh_cy);
    cell = at::mul(gradient, gates[3]).mul_(TanhSlope(tanh_cy));
    if (IsGiven(grad_cy)) cell.add_(*grad_cy);
  } else {
    cell = grad_cy->to(compute);
  }
  const Tensor of_gates =
      at::cat({at::mul(cell, gates[2]).mul_(SigmoidSlope(gates[0])),
               at::mul(cell, cx).mul_(SigmoidSlope(gates[1])),
               at::mul(cell, gates[0]).mul_(TanhSlope(gates[2])), output.mul_(SigmoidSlope(gates[3]))},
              1)
          .to(type);
  return {of_gates, at::mul(cell, gates[1]).to(type), BiasGradient(of_gates, has_bias)};
}

// ---- GRU: gates are reset, update, new ----

// Returns the new state, and the workspace for backward: reset, update, new, the previous state, the hidden
// part of new.
std::tuple<Tensor, Tensor> GruCell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                   const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  CheckCell("_thnn_fused_gru_cell", kGruGates, input_gates, hidden_gates, hx, input_bias, hidden_bias);
  const at::ScalarType type = input_gates.scalar_type(), compute = ComputeType(input_gates);
  Tensor input = input_gates.to(compute), hidden = hidden_gates.to(compute);
  if (IsGiven(input_bias)) {
    input = at::add(input, *input_bias);
    hidden = at::add(hidden, *hidden_bias);
  }
  const auto inputs = Parts(input, kGruGates), hiddens = Parts(hidden, kGruGates);
  const Tensor reset = at::add(inputs[0], hiddens[0]).sigmoid_();
  const Tensor update = at::add(inputs[1], hiddens[1]).sigmoid_();
  const Tensor fresh = at::mul(reset, hiddens[2]).add_(inputs[2]).tanh_();
  const Tensor state = hx.to(compute);
  const Tensor hy = at::sub(state, fresh).mul_(update).add_(fresh);
  return {hy.to(type), at::cat({reset, update, fresh, state, hiddens[2]}, 1).to(type)};
}

// Returns the gradients of the input's gates, the hidden gates, the previous state and both biases.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> GruCellBackward(const Tensor& grad_hy,
                                                                   const Tensor& workspace, bool has_bias) {
  TORCH_CHECK(grad_hy.dim() == 2 && workspace.dim() == 2 && workspace.size(0) == grad_hy.size(0) &&
                  workspace.size(1) == kGruSaved * grad_hy.size(1),
              "_thnn_fused_gru_cell_backward: a gradient of size ", grad_hy.sizes(),
              " does not fit a workspace of size ", workspace.sizes());
  const at::ScalarType type = workspace.scalar_type(), compute = ComputeType(workspace);
  const auto saved = Parts(workspace.to(compute), kGruSaved);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &state = saved[3];
  const Tensor gradient = grad_hy.to(compute);
  const Tensor of_update = at::sub(state, fresh).mul_(gradient).mul_(SigmoidSlope(update));
  const Tensor of_new = at::mul(gradient, OneMinus(update)).mul_(TanhSlope(fresh));
  const Tensor of_reset = at::mul(of_new, saved[4]).mul_(SigmoidSlope(reset));
  const Tensor of_input = at::cat({of_reset, of_update, of_new}, 1).to(type);
  const Tensor of_hidden = at::cat({of_reset, of_update, at::mul(of_new, reset)}, 1).to(type);
  return {of_input, of_hidden, at::mul(gradient, update).to(type), BiasGradient(of_input, has_bias),
          BiasGradient(of_hidden, has_bias)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(LstmCell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(LstmCellBackward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(GruCell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(GruCellBackward));
}

}  // namespace
}  // namespace xpud::shim
