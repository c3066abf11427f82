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
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "sdk/torch/csrc/command.h"
#include "sdk/torch/csrc/rnn_layer.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using rnn::Kind;
using rnn::State;
using rnn::Steps;
using rnn::Weights;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

// The weights of the directions of a layer, from the operator's list of parameters.
std::vector<Weights> WeightsOf(c10::ArrayRef<Tensor> parameters, bool has_biases, int64_t directions) {
  const size_t each = parameters.size() / static_cast<size_t>(directions), matrices = has_biases ? 4 : 2;
  std::vector<Weights> weights;
  for (size_t at = 0; at < parameters.size(); at += each) {
    Weights& w = weights.emplace_back();
    w.input = parameters[at];
    w.hidden = parameters[at + 1];
    if (has_biases) w.input_bias = parameters[at + 2], w.hidden_bias = parameters[at + 3];
    if (each > matrices) w.projection = parameters[at + matrices];
  }
  return weights;
}

// The inverse: gradients in the order of the parameters.
void Append(const Weights& weights, bool has_biases, variable_list& list) {
  list.push_back(weights.input);
  list.push_back(weights.hidden);
  if (has_biases) {
    list.push_back(weights.input_bias);
    list.push_back(weights.hidden_bias);
  }
  if (weights.projection.defined()) list.push_back(weights.projection);
}

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
  const std::vector<Weights> weights = WeightsOf(parameters, network.has_biases, rows);
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool is_first = i < static_cast<size_t>(directions);
    if (!Fit(weights[i], network.kind, is_first ? input.size(-1) : directions * hidden, hidden, cell))
      return false;
  }
  return true;
}

// ---- one layer ----

// A layer's states: [directions, batch, hidden].
struct LayerResults {
  Tensor output;
  State last;
  std::vector<Tensor> saved;
};

State StateOf(const State& all, int64_t direction) {
  return {all.hidden.select(0, direction), all.cell.defined() ? all.cell.select(0, direction) : Tensor()};
}

// Not a view, because a program may modify or detach a result in place.
Tensor Stacked(const Tensor& forward, const Tensor& backward) {
  return backward.defined() ? at::stack({forward, backward})
                            : at::_unsafe_view(forward, {1, forward.size(0), forward.size(1)});
}

LayerResults ForwardLayer(Kind kind, const Steps& steps, c10::ArrayRef<Weights> weights, const Tensor& input,
                          const State& first, bool training) {
  LayerResults results;
  std::array<rnn::Results, 2> each;
  for (size_t d = 0; d < weights.size(); ++d) {
    each[d] = rnn::Forward({kind, d == 1, steps, weights[d]}, input, StateOf(first, static_cast<int64_t>(d)),
                           training);
    results.saved.insert(results.saved.end(), each[d].saved.begin(), each[d].saved.end());
  }
  results.output = weights.size() == 1 ? each[0].output : at::cat({each[0].output, each[1].output}, 1);
  results.last.hidden = Stacked(each[0].last.hidden, each[1].last.hidden);
  if (kind == Kind::kLstm) results.last.cell = Stacked(each[0].last.cell, each[1].last.cell);
  return results;
}

// ATen's composition of one layer. Returns the output, and the last states.
variable_list ComposedLayer(Kind kind, const Steps& steps, const Tensor& input, c10::ArrayRef<Tensor> first,
                            c10::ArrayRef<Tensor> parameters, bool has_biases, bool bidirectional) {
  Tensor sizes = at::empty({steps.count()}, at::kLong);
  std::ranges::copy(steps.sizes(), sizes.data_ptr<int64_t>());
  if (kind == Kind::kLstm) {
    auto [output, hidden, cell] =
        at::native::lstm(input, sizes, first, parameters, has_biases, 1, 0, true, bidirectional);
    return {output, hidden, cell};
  }
  const auto single = [&](auto composed) -> variable_list {
    auto [output, hidden] =
        composed(input, sizes, first[0], parameters, has_biases, 1, 0, true, bidirectional);
    return {output, hidden};
  };
  using Composed = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&, at::TensorList,
                                                  bool, int64_t, double, bool, bool);
  if (kind == Kind::kGru) return single(static_cast<Composed>(at::native::gru));
  if (kind == Kind::kTanh) return single(static_cast<Composed>(at::native::rnn_tanh));
  return single(static_cast<Composed>(at::native::rnn_relu));
}

// A layer as a node of the graph. Tensors: input, first states (1 or 2), parameters.
class Layer : public torch::autograd::Function<Layer> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& input, at::TensorList first,
                               at::TensorList parameters, int64_t kind, bool has_biases, bool bidirectional,
                               const std::vector<int64_t>& sizes) {
    const Steps steps(sizes);
    const std::vector<Weights> weights = WeightsOf(parameters, has_biases, bidirectional ? 2 : 1);
    const LayerResults results =
        ForwardLayer(static_cast<Kind>(kind), steps, weights, input,
                     {first[0], first.size() > 1 ? first[1] : Tensor()}, /*training=*/true);
    variable_list kept = {input};
    kept.insert(kept.end(), first.begin(), first.end());
    kept.insert(kept.end(), parameters.begin(), parameters.end());
    kept.push_back(results.output);
    kept.insert(kept.end(), results.saved.begin(), results.saved.end());
    context->save_for_backward(std::move(kept));
    context->set_materialize_grads(false);
    context->saved_data["kind"] = kind;
    context->saved_data["has_biases"] = has_biases;
    context->saved_data["bidirectional"] = bidirectional;
    context->saved_data["sizes"] = sizes;
    context->saved_data["states"] = static_cast<int64_t>(first.size());
    context->saved_data["parameters"] = static_cast<int64_t>(parameters.size());
    variable_list outputs = {results.output, results.last.hidden};
    if (results.last.cell.defined()) outputs.push_back(results.last.cell);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Call call(*context, saved);
    variable_list result =
        at::GradMode::is_enabled() ? Differentiably(call, gradients) : ByKernels(*context, call, gradients);
    result.resize(result.size() + 4);  // kind, has_biases, bidirectional, sizes
    return result;
  }

 private:
  // The arguments and results of the forward call.
  struct Call {
    Call(AutogradContext& context, c10::ArrayRef<Tensor> tensors)
        : kind(static_cast<Kind>(context.saved_data["kind"].toInt())),
          has_biases(context.saved_data["has_biases"].toBool()),
          bidirectional(context.saved_data["bidirectional"].toBool()),
          steps(context.saved_data["sizes"].toIntVector()),
          states(static_cast<size_t>(context.saved_data["states"].toInt())),
          inputs(1 + states + static_cast<size_t>(context.saved_data["parameters"].toInt())),
          differentiable(tensors.slice(0, inputs)),
          output(tensors[inputs]),
          kept(tensors.slice(inputs + 1)) {}
    const Tensor& input() const { return differentiable[0]; }
    c10::ArrayRef<Tensor> first() const { return differentiable.slice(1, states); }
    c10::ArrayRef<Tensor> parameters() const { return differentiable.slice(1 + states); }

    Kind kind;
    bool has_biases, bidirectional;
    Steps steps;
    size_t states, inputs;
    c10::ArrayRef<Tensor> differentiable;
    const Tensor& output;
    c10::ArrayRef<Tensor> kept;
  };

  static variable_list ByKernels(AutogradContext& context, const Call& call, const variable_list& gradients) {
    const int64_t directions = call.bidirectional ? 2 : 1;
    const std::vector<Weights> weights = WeightsOf(call.parameters(), call.has_biases, directions);
    const State first = {call.first()[0], call.states > 1 ? call.first()[1] : Tensor()};
    const State last = {gradients[1], call.states > 1 ? gradients[2] : Tensor()};
    const bool needs_input = context.needs_input_grad(0);
    bool needs_weights = false;
    for (size_t i = 1 + call.states; i < call.inputs; ++i) needs_weights |= context.needs_input_grad(i);
    const size_t kept = call.kept.size() / weights.size();
    const int64_t columns = call.output.size(1) / directions;
    Tensor by_input;
    std::array<State, 2> by_state;
    variable_list by_parameters;
    for (int64_t d = 0; d < directions; ++d) {
      const auto at = static_cast<size_t>(d);
      const auto part = [&](const Tensor& tensor) {
        return tensor.defined() ? tensor.narrow(1, d * columns, columns) : tensor;
      };
      const auto of_direction = [&](const Tensor& tensor) {
        return tensor.defined() ? tensor.select(0, d) : tensor;
      };
      rnn::Gradients each =
          rnn::Backward({call.kind, d == 1, call.steps, weights[at]}, call.input(), StateOf(first, d),
                        part(call.output), call.kept.slice(at * kept, kept), part(gradients[0]),
                        {of_direction(last.hidden), of_direction(last.cell)}, needs_input, needs_weights);
      by_input = by_input.defined() ? by_input.add_(each.input) : each.input;
      by_state[at] = each.first;
      // As many as there are parameters, if undefined.
      if (!needs_weights) by_parameters.resize(call.inputs - 1 - call.states);
      if (needs_weights) Append(each.weights, call.has_biases, by_parameters);
    }
    variable_list result = {by_input, Stacked(by_state[0].hidden, by_state[1].hidden)};
    if (call.states > 1) result.push_back(Stacked(by_state[0].cell, by_state[1].cell));
    result.insert(result.end(), by_parameters.begin(), by_parameters.end());
    return result;
  }

  // Gradients that are part of a graph: those of ATen's composition, computed again.
  static variable_list Differentiably(const Call& call, const variable_list& gradients) {
    variable_list inputs, wanted;
    for (const Tensor& tensor : call.differentiable) {
      // A view is a new node, so gradients end here even if one argument depends on another.
      inputs.push_back(tensor.requires_grad() ? tensor.view_as(tensor) : tensor);
      if (tensor.requires_grad()) wanted.push_back(inputs.back());
    }
    const c10::ArrayRef<Tensor> all(inputs);
    const variable_list results =
        ComposedLayer(call.kind, call.steps, all[0], all.slice(1, call.states), all.slice(1 + call.states),
                      call.has_biases, call.bidirectional);
    variable_list roots, of_roots;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(results[i]);
      of_roots.push_back(gradients[i]);
    }
    variable_list found(wanted.size());
    if (!roots.empty())
      found = torch::autograd::grad(roots, wanted, of_roots, /*retain_graph=*/true, /*create_graph=*/true,
                                    /*allow_unused=*/true);
    variable_list result;
    size_t next = 0;
    for (const Tensor& tensor : call.differentiable)
      result.push_back(tensor.requires_grad() ? found[next++] : Tensor());
    return result;
  }
};

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
    variable_list own = {of_layer(states.hidden)};
    if (states.cell.defined()) own.push_back(of_layer(states.cell));
    const c10::ArrayRef<Tensor> weights = parameters.slice(static_cast<size_t>(layer) * each, each);
    if (graph) {
      const variable_list results =
          Layer::apply(x, at::TensorList(own), at::TensorList(weights), static_cast<int64_t>(network.kind),
                       network.has_biases, network.bidirectional, steps.sizes());
      x = results[0];
      hidden.push_back(results[1]);
      if (results.size() > 2) cell.push_back(results[2]);
    } else {
      const LayerResults results =
          ForwardLayer(network.kind, steps, WeightsOf(weights, network.has_biases, directions), x,
                       {own[0], own.size() > 1 ? own[1] : Tensor()}, /*training=*/false);
      x = results.output;
      hidden.push_back(results.last.hidden);
      if (results.last.cell.defined()) cell.push_back(results.last.cell);
    }
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
  m.impl("lstm.input", TORCH_FN(Lstm));
  m.impl("lstm.data", TORCH_FN(PackedLstm));
  m.impl("gru.input", TORCH_FN((OneState<Kind::kGru, at::native::gru>)));
  m.impl("gru.data", TORCH_FN((PackedOneState<Kind::kGru, at::native::gru>)));
  m.impl("rnn_tanh.input", TORCH_FN((OneState<Kind::kTanh, at::native::rnn_tanh>)));
  m.impl("rnn_tanh.data", TORCH_FN((PackedOneState<Kind::kTanh, at::native::rnn_tanh>)));
  m.impl("rnn_relu.input", TORCH_FN((OneState<Kind::kRelu, at::native::rnn_relu>)));
  m.impl("rnn_relu.data", TORCH_FN((PackedOneState<Kind::kRelu, at::native::rnn_relu>)));
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
