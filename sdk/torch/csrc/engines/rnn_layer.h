// One layer of a recurrent network in one direction, for a whole sequence: its results and its gradients.
//
// The products with the input's weights are one product for all steps. A step is one product with the hidden
// state, and one kernel for the rest. Gradients likewise: those of the weights are products over all steps.
// Nothing waits for the device.
//
// Formulas: Elman 1990; Hochreiter and Schmidhuber 1997, with Gers et al.'s forget gate and Sak et al.'s
// projection; Cho et al. 2014, with the reset gate after the product. The order of gates is PyTorch's: input,
// forget, cell, output (LSTM), and reset, update, new (GRU).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace xpud::shim::rnn {

enum class Kind : int64_t { kTanh, kRelu, kLstm, kGru };

constexpr int64_t GatesOf(Kind kind) { return kind == Kind::kLstm ? 4 : kind == Kind::kGru ? 3 : 1; }

// Without biases or a projection these are undefined.
struct Weights {
  at::Tensor input, hidden, input_bias, hidden_bias, projection;
};

// `cell` is defined for LSTM only.
struct State {
  at::Tensor hidden, cell;
};

// The rows of each step in a tensor [rows, ..] that holds a step after the other. Sizes of steps never
// increase: sequences are sorted by length.
class Steps {
 public:
  explicit Steps(std::vector<int64_t> sizes);
  int64_t count() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t rows() const { return rows_; }
  int64_t batch() const { return sizes_.front(); }
  bool are_equal() const { return sizes_.front() == sizes_.back(); }
  int64_t size(int64_t step) const { return sizes_[static_cast<size_t>(step)]; }
  int64_t begin(int64_t step) const { return begins_[static_cast<size_t>(step)]; }
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  std::vector<int64_t> sizes_, begins_;
  int64_t rows_ = 0;
};

// A layer's direction. All tensors are on one device and of one floating type; sizes fit, and none is 0.
struct Direction {
  Kind kind;
  bool reversed;
  const Steps& steps;
  const Weights& weights;
};

struct Results {
  at::Tensor output;  // [rows, hidden]
  State last;         // [batch, hidden]
  std::vector<at::Tensor> saved;
};

// `input` is [rows, inputs], the state [batch, hidden]. `training`: keeps in `saved` what Gradients needs.
Results Forward(const Direction& direction, const at::Tensor& input, const State& first, bool training);

struct Gradients {
  at::Tensor input;
  State first;
  Weights weights;
};

// `output` and `saved` are Forward's. `grad_output` and parts of `grad_last` may be undefined, which means 0.
// Leaves the gradient by the input undefined unless `needs_input`, and those by the weights unless
// `needs_weights`.
Gradients Backward(const Direction& direction, const at::Tensor& input, const State& first,
                   const at::Tensor& output, c10::ArrayRef<at::Tensor> saved, const at::Tensor& grad_output,
                   const State& grad_last, bool needs_input, bool needs_weights);

}  // namespace xpud::shim::rnn
