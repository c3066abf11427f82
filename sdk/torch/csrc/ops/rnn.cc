// Recurrent networks: lstm, gru, rnn_tanh and rnn_relu, of tensors and of packed sequences.
//
// ATen composes these operators of others, and takes `_cudnn_rnn` only for CUDA tensors
// (`cudnn_is_acceptable` asks for them). So they are registered here, with gradients of their own: a node of
// the graph for each layer. ATen's composition computes what these kernels do not: gradients of gradients,
// transforms of torch.func, other types. It also raises the errors for sizes that do not fit. Forward-mode
// gradients end in a NotImplementedError of its fused cells, as on CUDA.
#include <ATen/ATen.h>
#include <ATen/FuncTorchTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <torch/library.h>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/rnn_graph.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using rnn::Kind;
using rnn::State;
using rnn::Steps;
using rnn::Weights;

// ---- arguments ----

// What all operators have besides tensors.
struct Network {
  Kind kind;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional;

  int64_t directions() const { return bidirectional ? 2 : 1; }
};

bool IsMatrix(const Tensor& tensor, int64_t rows, int64_t columns) {
  return tensor.dim() == 2 && tensor.size(0) == rows && tensor.size(1) == columns;
}

// Returns true if the sizes of a layer's weights fit inputs and states of these sizes.
bool Fit(const Weights& weights, Kind kind, int64_t inputs, int64_t hidden, int64_t cell) {
  const int64_t sums = rnn::GatesOf(kind) * cell;
  const auto is_bias = [&](const Tensor& bias) {
    return !bias.defined() || (bias.dim() == 1 && bias.size(0) == sums);
  };
  return IsMatrix(weights.input, sums, inputs) && IsMatrix(weights.hidden, sums, hidden) &&
         is_bias(weights.input_bias) && is_bias(weights.hidden_bias) &&
         (hidden == cell ? !weights.projection.defined()
                         : weights.projection.defined() && IsMatrix(weights.projection, hidden, cell));
}

bool HasForwardGradient(const Tensor& tensor) { return tensor._fw_grad(0).defined(); }

// Returns true if the layers' kernels compute this call.
bool IsServedByLayers(const Network& network, const Tensor& input, const Steps& steps, const State& first,
                      c10::ArrayRef<Tensor> parameters) {
  const auto is_served = [&](const Tensor& tensor) {
    return tensor.defined() && IsServed(tensor, ops::kFloatTypes) && tensor.device() == input.device() &&
           tensor.scalar_type() == input.scalar_type() && tensor.numel() > 0 && !HasForwardGradient(tensor);
  };
  const bool lstm = network.kind == Kind::kLstm;
  if (!is_served(input) || !is_served(first.hidden) || (lstm && !is_served(first.cell))) return false;
  if (!std::ranges::all_of(parameters, is_served) || at::functorch::functorchTLSAccessor() != nullptr)
    return false;
  const int64_t directions = network.directions(), rows = network.layers * directions;
  const auto is_state = [&](const Tensor& state) {
    return state.dim() == 3 && state.size(0) == rows && state.size(1) == steps.batch();
  };
  if (!is_state(first.hidden) || (lstm && !is_state(first.cell))) return false;
  const int64_t hidden = first.hidden.size(2), cell = lstm ? first.cell.size(2) : hidden;
  const size_t each = (network.has_biases ? 4 : 2) + (hidden != cell ? 1 : 0);
  if (rows == 0 || parameters.size() != each * static_cast<size_t>(rows)) return false;
  const std::vector<Weights> weights = rnn::WeightsOf(parameters, network.has_biases, rows);
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool is_first = i < static_cast<size_t>(directions);
    if (!Fit(weights[i], network.kind, is_first ? input.size(-1) : directions * hidden, hidden, cell))
      return false;
  }
  return true;
}

// ---- the whole network ----

bool NeedsGraph(const Tensor& input, const State& first, c10::ArrayRef<Tensor> parameters) {
  const auto requires_grad = [](const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  return at::GradMode::is_enabled() &&
         (requires_grad(input) || requires_grad(first.hidden) || requires_grad(first.cell) ||
          std::ranges::any_of(parameters, requires_grad));
}

// `input` is [rows, inputs]. Returns the output [rows, hidden] and the last states.
std::tuple<Tensor, State> Run(const Network& network, const Tensor& input, const Steps& steps,
                              const State& first, c10::ArrayRef<Tensor> parameters) {
  const int64_t directions = network.directions();
  const size_t each = parameters.size() / static_cast<size_t>(network.layers);
  const bool graph = NeedsGraph(input, first, parameters);
  const State states = {first.hidden.contiguous(), first.cell.defined() ? first.cell.contiguous() : Tensor()};
  Tensor x = input;
  std::vector<Tensor> hidden, cell;
  for (int64_t layer = 0; layer < network.layers; ++layer) {
    const auto of_layer = [&](const Tensor& state) {
      return state.narrow(0, layer * directions, directions);
    };
    const State own = {of_layer(states.hidden), states.cell.defined() ? of_layer(states.cell) : Tensor()};
    const auto [output, last] =
        rnn::RunLayer({network.kind, network.has_biases, network.bidirectional}, steps, x, own,
                      parameters.slice(static_cast<size_t>(layer) * each, each), graph);
    x = output;
    hidden.push_back(last.hidden);
    if (last.cell.defined()) cell.push_back(last.cell);
    if (network.dropout != 0 && network.train && layer < network.layers - 1)
      x = at::dropout(x, network.dropout, true);
  }
  const auto joined = [](const std::vector<Tensor>& states) {
    return states.empty() ? Tensor() : states.size() == 1 ? states[0] : at::cat(states);
  };
  return {x, State{joined(hidden), joined(cell)}};
}

// Returns nullopt if the kernels do not compute this call.
std::optional<std::tuple<Tensor, State>> RunSequences(const Network& network, const Tensor& input,
                                                      const State& first, c10::ArrayRef<Tensor> parameters,
                                                      bool batch_first) {
  if (input.dim() != 3 || input.numel() == 0) return std::nullopt;
  const Tensor x = (batch_first ? input.transpose(0, 1) : input);
  const int64_t count = x.size(0), batch = x.size(1);
  const Steps steps(std::vector<int64_t>(static_cast<size_t>(count), batch));
  if (!IsServedByLayers(network, x, steps, first, parameters)) return std::nullopt;
  auto [output, last] = Run(network, x.reshape({count * batch, x.size(2)}), steps, first, parameters);
  output = at::_unsafe_view(output, {count, batch, output.size(1)});
  return std::tuple(batch_first ? output.transpose_(0, 1) : output, last);
}

std::optional<std::tuple<Tensor, State>> RunPacked(const Network& network, const Tensor& data,
                                                   const Tensor& batch_sizes, const State& first,
                                                   c10::ArrayRef<Tensor> parameters) {
  const bool readable = batch_sizes.device().is_cpu() && batch_sizes.scalar_type() == at::kLong &&
                        batch_sizes.dim() == 1 && batch_sizes.numel() > 0;
  if (data.dim() != 2 || !readable) return std::nullopt;
  const Tensor sizes = batch_sizes.contiguous();
  const Steps steps(
      std::vector<int64_t>(sizes.data_ptr<int64_t>(), sizes.data_ptr<int64_t>() + sizes.numel()));
  const bool sorted = std::ranges::is_sorted(steps.sizes(), std::greater()) && steps.sizes().back() > 0;
  if (!sorted || steps.rows() != data.size(0) || !IsServedByLayers(network, data, steps, first, parameters))
    return std::nullopt;
  return Run(network, data.contiguous(), steps, first, parameters);
}

// ---- operators ----

using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

Three Lstm(const Tensor& input, at::TensorList hx, at::TensorList parameters, bool has_biases, int64_t layers,
           double dropout, bool train, bool bidirectional, bool batch_first) {
  const Network network = {Kind::kLstm, has_biases, layers, dropout, train, bidirectional};
  if (hx.size() == 2) {
    if (auto run = RunSequences(network, input, {hx[0], hx[1]}, parameters, batch_first)) {
      auto& [output, last] = *run;
      return {output, last.hidden, last.cell};
    }
  }
  return at::native::lstm(input, hx, parameters, has_biases, layers, dropout, train, bidirectional,
                          batch_first);
}

Three PackedLstm(const Tensor& data, const Tensor& batch_sizes, at::TensorList hx, at::TensorList parameters,
                 bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const Network network = {Kind::kLstm, has_biases, layers, dropout, train, bidirectional};
  if (hx.size() == 2) {
    if (auto run = RunPacked(network, data, batch_sizes, {hx[0], hx[1]}, parameters)) {
      auto& [output, last] = *run;
      return {output, last.hidden, last.cell};
    }
  }
  return at::native::lstm(data, batch_sizes, hx, parameters, has_biases, layers, dropout, train,
                          bidirectional);
}

using Sequences = Two (*)(const Tensor&, const Tensor&, at::TensorList, bool, int64_t, double, bool, bool,
                          bool);
using Packed = Two (*)(const Tensor&, const Tensor&, const Tensor&, at::TensorList, bool, int64_t, double,
                       bool, bool);

template <Kind kKind, Sequences kComposed>
Two OneState(const Tensor& input, const Tensor& hx, at::TensorList parameters, bool has_biases,
             int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const Network network = {kKind, has_biases, layers, dropout, train, bidirectional};
  if (auto run = RunSequences(network, input, {hx, {}}, parameters, batch_first))
    return {std::get<0>(*run), std::get<1>(*run).hidden};
  return kComposed(input, hx, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
}

template <Kind kKind, Packed kComposed>
Two PackedOneState(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, at::TensorList parameters,
                   bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const Network network = {kKind, has_biases, layers, dropout, train, bidirectional};
  if (auto run = RunPacked(network, data, batch_sizes, {hx, {}}, parameters))
    return {std::get<0>(*run), std::get<1>(*run).hidden};
  return kComposed(data, batch_sizes, hx, parameters, has_biases, layers, dropout, train, bidirectional);
}

// Under autocast a network computes in the lower type, as its products would.
template <class Op, auto kKernel>
struct Autocast;
template <class Op, class Result, class... Args, Result (*kKernel)(Args...)>
struct Autocast<Op, kKernel> {
  static Result Call(Args... arguments) {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastPrivateUse1);
    const at::ScalarType type = at::autocast::get_autocast_dtype(kDeviceType);
    return Op::call(at::autocast::cached_cast(type, arguments, kDeviceType)...);
  }
};

void Register(torch::Library& m) {
  m.impl("lstm.input", XPUD_FN(Lstm));
  m.impl("lstm.data", XPUD_FN(PackedLstm));
  m.impl("gru.input", XPUD_FN(OneState<Kind::kGru, at::native::gru>));
  m.impl("gru.data", XPUD_FN(PackedOneState<Kind::kGru, at::native::gru>));
  m.impl("rnn_tanh.input", XPUD_FN(OneState<Kind::kTanh, at::native::rnn_tanh>));
  m.impl("rnn_tanh.data", XPUD_FN(PackedOneState<Kind::kTanh, at::native::rnn_tanh>));
  m.impl("rnn_relu.input", XPUD_FN(OneState<Kind::kRelu, at::native::rnn_relu>));
  m.impl("rnn_relu.data", XPUD_FN(PackedOneState<Kind::kRelu, at::native::rnn_relu>));
}

// The first serves inference mode.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { Register(m); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { Register(m); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  m.impl("lstm.input", TORCH_FN((Autocast<at::_ops::lstm_input, Lstm>::Call)));
  m.impl("lstm.data", TORCH_FN((Autocast<at::_ops::lstm_data, PackedLstm>::Call)));
  m.impl("gru.input", TORCH_FN((Autocast<at::_ops::gru_input, OneState<Kind::kGru, at::native::gru>>::Call)));
  m.impl("gru.data",
         TORCH_FN((Autocast<at::_ops::gru_data, PackedOneState<Kind::kGru, at::native::gru>>::Call)));
  m.impl("rnn_tanh.input",
         TORCH_FN((Autocast<at::_ops::rnn_tanh_input, OneState<Kind::kTanh, at::native::rnn_tanh>>::Call)));
  m.impl(
      "rnn_tanh.data",
      TORCH_FN((Autocast<at::_ops::rnn_tanh_data, PackedOneState<Kind::kTanh, at::native::rnn_tanh>>::Call)));
  m.impl("rnn_relu.input",
         TORCH_FN((Autocast<at::_ops::rnn_relu_input, OneState<Kind::kRelu, at::native::rnn_relu>>::Call)));
  m.impl(
      "rnn_relu.data",
      TORCH_FN((Autocast<at::_ops::rnn_relu_data, PackedOneState<Kind::kRelu, at::native::rnn_relu>>::Call)));
}

}  // namespace
}  // namespace xpud::shim
