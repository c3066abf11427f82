#include "sdk/torch/csrc/engines/rnn_graph.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "sdk/torch/csrc/call/kernel.h"

namespace xpud::shim::rnn {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Appends gradients in the order of the parameters.
void Append(const Weights& weights, bool has_biases, variable_list& list) {
  list.push_back(weights.input);
  list.push_back(weights.hidden);
  if (has_biases) {
    list.push_back(weights.input_bias);
    list.push_back(weights.hidden_bias);
  }
  if (weights.projection.defined()) list.push_back(weights.projection);
}

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
  std::array<Results, 2> each;
  for (size_t d = 0; d < weights.size(); ++d) {
    each[d] =
        Forward({kind, d == 1, steps, weights[d]}, input, StateOf(first, static_cast<int64_t>(d)), training);
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
    const BelowAutocast scope;  // of a backward pass inside an autocast region
    const variable_list saved = context->get_saved_variables();
    const Call call(*context, saved);
    // Those of torch.func and of subclasses have no memory.
    const bool have_memory = std::ranges::none_of(gradients, [](const Tensor& gradient) {
      return gradient.defined() && at::isTensorSubclassLike(gradient);
    });
    const bool graph = at::GradMode::is_enabled();
    variable_list result =
        graph || !have_memory ? Differentiably(call, gradients, graph) : ByKernels(*context, call, gradients);
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
      Gradients each =
          Backward({call.kind, d == 1, call.steps, weights[at]}, call.input(), StateOf(first, d),
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

  // Those of ATen's composition, computed again; they are part of the graph if that is wanted.
  static variable_list Differentiably(const Call& call, const variable_list& gradients, bool graph) {
    const at::AutoGradMode recomputes(true);
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
      found = torch::autograd::grad(roots, wanted, of_roots, /*retain_graph=*/true, /*create_graph=*/graph,
                                    /*allow_unused=*/true);
    variable_list result;
    size_t next = 0;
    for (const Tensor& tensor : call.differentiable)
      result.push_back(tensor.requires_grad() ? found[next++] : Tensor());
    return result;
  }
};

}  // namespace

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

std::tuple<Tensor, State> RunLayer(const LayerKind& kind, const Steps& steps, const Tensor& input,
                                   const State& first, c10::ArrayRef<Tensor> parameters, bool graph) {
  if (!graph) {
    const LayerResults results =
        ForwardLayer(kind.kind, steps, WeightsOf(parameters, kind.has_biases, kind.bidirectional ? 2 : 1),
                     input, first, /*training=*/false);
    return {results.output, results.last};
  }
  variable_list states = {first.hidden};
  if (first.cell.defined()) states.push_back(first.cell);
  const variable_list results =
      Layer::apply(input, at::TensorList(states), at::TensorList(parameters), static_cast<int64_t>(kind.kind),
                   kind.has_biases, kind.bidirectional, steps.sizes());
  return {results[0], State{results[1], results.size() > 2 ? results[2] : Tensor()}};
}

}  // namespace xpud::shim::rnn
