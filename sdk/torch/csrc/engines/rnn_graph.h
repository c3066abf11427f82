// A layer of a recurrent network, in one or both directions, as a node of PyTorch's graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "sdk/torch/csrc/engines/rnn_layer.h"

namespace xpud::shim::rnn {

struct LayerKind {
  Kind kind;
  bool has_biases, bidirectional;
};

// The weights of each direction, from an operator's list of parameters.
std::vector<Weights> WeightsOf(c10::ArrayRef<at::Tensor> parameters, bool has_biases, int64_t directions);

// `input` is [rows, inputs], the states are [directions, batch, hidden]; sizes fit. Returns the output
// [rows, directions * hidden] and the last states. `graph`: records a node, which has gradients of gradients,
// too.
std::tuple<at::Tensor, State> RunLayer(const LayerKind& kind, const Steps& steps, const at::Tensor& input,
                                       const State& first, c10::ArrayRef<at::Tensor> parameters, bool graph);

}  // namespace xpud::shim::rnn
