// Cells of LSTM and GRU, computed like CUDA's kernels: 16-bit gates in f32, rounded once. Formulas:
// Hochreiter and Schmidhuber 1997 with Gers et al.'s forget gate; Cho et al. 2014, reset after the product.
#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <torch/library.h>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/matrix.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/runtime/storage.h"

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

Tensor NewMatrix(int64_t rows, int64_t columns, const Tensor& like, at::ScalarType type) {
  return MakeEmpty({rows, columns}, type, like.device());
}

// The sums of the gates, in the compute type.
Tensor Sum(const Tensor& input_gates, const Tensor& hidden_gates, const OptionalTensor& input_bias,
           const OptionalTensor& hidden_bias) {
  static const ops::Row& row = ops::RowOf("xpud::sum_of_4");
  const Tensor sum =
      NewMatrix(input_gates.size(0), input_gates.size(1), input_gates, ComputeType(input_gates));
  const MapInput zero(0.0, false);
  const MapInput inputs[] = {input_gates, hidden_gates, IsGiven(input_bias) ? MapInput(*input_bias) : zero,
                             IsGiven(hidden_bias) ? MapInput(*hidden_bias) : zero};
  LaunchMap(row, *ToDType(sum.scalar_type()), {&sum, 1}, inputs);
  return sum;
}

Tensor BiasGradient(const Tensor& gates, bool has_bias) { return has_bias ? gates.sum(0) : Tensor(); }

// ---- LSTM: gates are input, forget, cell, output ----

// Returns the new hidden state, the new cell state, and the gates' values.
std::tuple<Tensor, Tensor, Tensor> LstmCell(const Tensor& input_gates, const Tensor& hidden_gates,
                                            const Tensor& cx, const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  static const ops::Row& row = ops::RowOf("xpud::lstm_step_training");
  CheckCell("_thnn_fused_lstm_cell", kLstmGates, input_gates, hidden_gates, cx, input_bias, hidden_bias);
  const Tensor sum = Sum(input_gates, hidden_gates, input_bias, hidden_bias);
  const int64_t batch = cx.size(0), size = cx.size(1);
  const at::ScalarType type = input_gates.scalar_type();
  const Tensor hy = NewMatrix(batch, size, cx, type), cy = NewMatrix(batch, size, cx, type),
               values = NewMatrix(batch, kLstmGates * size, cx, type);
  if (hy.numel() == 0) return {hy, cy, values};
  const auto gate = [&](const Tensor& gates, int64_t which) {
    return Matrix(gates).Columns(which * size, size);
  };
  LaunchMap(row, {Matrix(hy), Matrix(cy), gate(values, 0), gate(values, 1), gate(values, 2), gate(values, 3)},
            {gate(sum, 0), gate(sum, 1), gate(sum, 2), gate(sum, 3), Matrix(cx)}, DeviceIndexOf(cx));
  return {hy, cy, values};
}

// Returns the gradients of the gates, the previous cell state and the bias.
std::tuple<Tensor, Tensor, Tensor> LstmCellBackward(const OptionalTensor& grad_hy,
                                                    const OptionalTensor& grad_cy, const Tensor& cx,
                                                    const Tensor& cy, const Tensor& workspace,
                                                    bool has_bias) {
  static const ops::Row& row = ops::RowOf("xpud::lstm_step_backward");
  if (!IsGiven(grad_hy) && !IsGiven(grad_cy)) return {};
  TORCH_CHECK(workspace.dim() == 2 && workspace.numel() == kLstmGates * cx.numel() &&
                  cx.sizes() == cy.sizes() && (!IsGiven(grad_hy) || grad_hy->sizes() == cx.sizes()) &&
                  (!IsGiven(grad_cy) || grad_cy->sizes() == cx.sizes()),
              "_thnn_fused_lstm_cell_backward: the sizes of states, gradients and workspace do not fit");
  const int64_t batch = cx.size(0), size = cx.size(1);
  const at::ScalarType type = workspace.scalar_type();
  const Tensor gates = NewMatrix(batch, kLstmGates * size, cx, type),
               grad_cx = NewMatrix(batch, size, cx, type);
  if (gates.numel() > 0) {
    const auto gate = [&](const Tensor& all, int64_t which) {
      return Matrix(all).Columns(which * size, size);
    };
    LaunchMap(row, {gate(gates, 0), gate(gates, 1), gate(gates, 2), gate(gates, 3), Matrix(grad_cx)},
              {gate(workspace, 0), gate(workspace, 1), gate(workspace, 2), gate(workspace, 3), Matrix(cx),
               Matrix(cy), IsGiven(grad_hy) ? Matrix(*grad_hy) : Matrix(0.0),
               IsGiven(grad_cy) ? Matrix(*grad_cy) : Matrix(0.0)},
              DeviceIndexOf(cx));
  }
  return {gates, grad_cx, BiasGradient(gates, has_bias)};
}

// ---- GRU: gates are reset, update, new ----

// Returns the new state, and the workspace for backward: reset, update, new, the previous state, the hidden
// part of new.
std::tuple<Tensor, Tensor> GruCell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                   const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  static const ops::Row& row = ops::RowOf("xpud::gru_step_training");
  CheckCell("_thnn_fused_gru_cell", kGruGates, input_gates, hidden_gates, hx, input_bias, hidden_bias);
  const at::ScalarType type = input_gates.scalar_type(), compute = ComputeType(input_gates);
  Tensor input = input_gates, hidden = hidden_gates;
  if (IsGiven(input_bias)) {
    input = at::add(input.to(compute), *input_bias);
    hidden = at::add(hidden.to(compute), *hidden_bias);
  }
  const int64_t batch = hx.size(0), size = hx.size(1);
  const Tensor hy = NewMatrix(batch, size, hx, type), saved = NewMatrix(batch, kGruSaved * size, hx, type);
  if (hy.numel() == 0) return {hy, saved};
  const auto gate = [&](const Tensor& all, int64_t which) { return Matrix(all).Columns(which * size, size); };
  LaunchMap(row, {Matrix(hy), gate(saved, 0), gate(saved, 1), gate(saved, 2)},
            {gate(input, 0), gate(input, 1), gate(input, 2), gate(hidden, 0), gate(hidden, 1),
             gate(hidden, 2), Matrix(hx)},
            DeviceIndexOf(hx));
  saved.narrow(1, 3 * size, size).copy_(hx);
  saved.narrow(1, 4 * size, size).copy_(hidden.narrow(1, 2 * size, size));
  return {hy, saved};
}

// Returns the gradients of the input's gates, the hidden gates, the previous state and both biases.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> GruCellBackward(const Tensor& grad_hy,
                                                                   const Tensor& workspace, bool has_bias) {
  static const ops::Row& row = ops::RowOf("xpud::gru_step_backward");
  TORCH_CHECK(grad_hy.dim() == 2 && workspace.dim() == 2 && workspace.size(0) == grad_hy.size(0) &&
                  workspace.size(1) == kGruSaved * grad_hy.size(1),
              "_thnn_fused_gru_cell_backward: a gradient of size ", grad_hy.sizes(),
              " does not fit a workspace of size ", workspace.sizes());
  const int64_t batch = grad_hy.size(0), size = grad_hy.size(1);
  const at::ScalarType type = workspace.scalar_type();
  const Tensor of_hidden = NewMatrix(batch, kGruGates * size, grad_hy, type),
               of_new = NewMatrix(batch, size, grad_hy, type),
               grad_hx = NewMatrix(batch, size, grad_hy, type);
  if (grad_hx.numel() > 0) {
    const auto gate = [&](const Tensor& all, int64_t which) {
      return Matrix(all).Columns(which * size, size);
    };
    LaunchMap(row,
              {gate(of_hidden, 0), gate(of_hidden, 1), Matrix(of_new), gate(of_hidden, 2), Matrix(grad_hx)},
              {gate(workspace, 0), gate(workspace, 1), gate(workspace, 2), gate(workspace, 4),
               gate(workspace, 3), Matrix(grad_hy), Matrix(0.0)},
              DeviceIndexOf(grad_hy));
  }
  const Tensor of_input = at::cat({of_hidden.narrow(1, 0, 2 * size), of_new}, 1);
  return {of_input, of_hidden, grad_hx, BiasGradient(of_input, has_bias), BiasGradient(of_hidden, has_bias)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", XPUD_FN(LstmCell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", XPUD_FN(LstmCellBackward));
  m.impl("_thnn_fused_gru_cell", XPUD_FN(GruCell));
  m.impl("_thnn_fused_gru_cell_backward", XPUD_FN(GruCellBackward));
}

}  // namespace
}  // namespace xpud::shim
