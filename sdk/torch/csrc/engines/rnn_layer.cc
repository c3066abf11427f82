#include "sdk/torch/csrc/engines/rnn_layer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "sdk/torch/csrc/call/matrix.h"
#include "sdk/torch/csrc/engines/product.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim::rnn {
namespace {

using at::Tensor;

// ---- commands ----

void Copy(const Matrix& to, const Matrix& from, int device) {
  static const ops::Row& row = ops::RowOf("_copy_from");
  LaunchMap(row, {to}, {from}, device);
}

void Add(const Matrix& to, const Matrix& other, int device) {
  static const ops::Row& row = ops::RowOf("add.Tensor");
  LaunchMap(row, {to}, {to, other, Matrix(1.0)}, device);
}

// out = a b + addend. An absent addend is not added; it may be out.
void Multiply(const Matrix& out, const Matrix& a, const Matrix& b, const Matrix& addend, int device) {
  LaunchProduct(out.Ref(), a.Ref(), b.Ref(), addend.Ref(), 1, 1, device);
}

Tensor NewMatrix(int64_t rows, int64_t columns, const Tensor& like) {
  return MakeEmpty({rows, columns}, like.scalar_type(), like.device());
}

// ---- the walk through a sequence ----

// Rows of a step whose states before the step lie in one place.
struct Part {
  int64_t row;  // the first, among the rows of all steps
  int64_t count;
  int64_t item;      // the first, among the items of the batch
  int64_t previous;  // the row of its state before, or -1 if that is the first state
};

class Walk {
 public:
  explicit Walk(const Direction& direction, const Tensor& like)
      : direction_(direction), steps_(direction.steps), device_(DeviceIndexOf(like)) {}

 protected:
  // The k-th step in the order of computation.
  int64_t At(int64_t k) const { return direction_.reversed ? steps_.count() - 1 - k : k; }
  int64_t SizeAt(int64_t k) const { return k < 0 || k >= steps_.count() ? 0 : steps_.size(At(k)); }
  int64_t RowAt(int64_t k) const { return steps_.begin(At(k)); }
  Matrix RowsAt(const Matrix& all, int64_t k) const { return all.Rows(RowAt(k), SizeAt(k)); }

  // Calls `visit` for the rows that continue the step before, then for those that begin here: in reversed
  // order a sequence begins when its last element is reached.
  template <class Visit>
  void ForEachPart(int64_t k, Visit visit) const {
    const int64_t row = RowAt(k), count = SizeAt(k), continued = std::min(count, SizeAt(k - 1));
    if (continued > 0) visit(Part{row, continued, 0, RowAt(k - 1)});
    if (count > continued) visit(Part{row + continued, count - continued, continued, -1});
  }
  // The states before a part: rows of `all`, or of the first state.
  static Matrix Before(const Part& part, const Matrix& all, const Matrix& first) {
    return part.previous >= 0 ? all.Rows(part.previous, part.count) : first.Rows(part.item, part.count);
  }
  void Send(const ops::Row& row, std::initializer_list<Matrix> outputs,
            std::initializer_list<Matrix> inputs) const {
    LaunchMap(row, outputs, inputs, device_);
  }
  void Product(const Matrix& out, const Matrix& a, const Matrix& b, const Matrix& addend = {}) const {
    Multiply(out, a, b, addend, device_);
  }
  // The columns of a gate.
  static Matrix Gate(const Matrix& gates, int64_t gate, int64_t size) {
    return gates.Columns(gate * size, size);
  }

  const Direction& direction_;
  const Steps& steps_;
  const int device_;
};

// ---- forward ----

class Pass : public Walk {
 public:
  Pass(const Direction& direction, const Tensor& input, const State& first, bool training)
      : Walk(direction, input),
        training_(training),
        size_(direction.weights.hidden.size(0) / GatesOf(direction.kind)),
        first_(first.hidden),
        hidden_weight_(Matrix(direction.weights.hidden).Transposed()) {
    const Weights& weights = direction.weights;
    results_.output = NewMatrix(steps_.rows(), weights.hidden.size(1), input);
    output_ = Matrix(results_.output);
    Tensor bias = weights.input_bias;
    if (bias.defined() && direction.kind != Kind::kGru) bias = at::add(bias, weights.hidden_bias);
    gates_of_input_ = at::linear(input, weights.input, bias);
    gates_ = Matrix(gates_of_input_);
  }
  virtual ~Pass() = default;

  Results Run() {
    for (int64_t k = 0; k < steps_.count(); ++k) ForEachPart(k, [&](const Part& part) { Step(part); });
    results_.last.hidden = Last(results_.output);
    Finish();
    return std::move(results_);
  }

 protected:
  virtual void Step(const Part& part) = 0;
  // Completes the results after the last step.
  virtual void Finish() {}

  Matrix InputGates(const Part& part) const { return gates_.Rows(part.row, part.count); }
  Matrix OutputOf(const Part& part) const { return output_.Rows(part.row, part.count); }
  Matrix HiddenBefore(const Part& part) const { return Before(part, output_, first_); }

  // The state after the last step of each sequence.
  Tensor Last(const Tensor& states) const {
    const Tensor last = NewMatrix(steps_.batch(), states.size(1), states);
    for (int64_t k = 0; k < steps_.count(); ++k) {
      const int64_t kept = SizeAt(k + 1), ended = SizeAt(k) - kept;
      if (ended > 0)
        Copy(Matrix(last).Rows(kept, ended), Matrix(states).Rows(RowAt(k) + kept, ended), device_);
    }
    return last;
  }

  const bool training_;
  const int64_t size_;  // of a gate
  const Matrix first_, hidden_weight_;
  Tensor gates_of_input_;
  Matrix gates_, output_;
  Results results_;
};

class SimplePass final : public Pass {
 public:
  using Pass::Pass;

 private:
  void Step(const Part& part) override {
    static const ops::Row &tanh = ops::RowOf("tanh"), &relu = ops::RowOf("relu");
    const Matrix out = OutputOf(part);
    Product(out, HiddenBefore(part), hidden_weight_, InputGates(part));
    Send(direction_.kind == Kind::kTanh ? tanh : relu, {out}, {out});
  }
};

// Saves the gates' values, the cell states, and with a projection the hidden states before it.
class LstmPass final : public Pass {
 public:
  LstmPass(const Direction& direction, const Tensor& input, const State& first, bool training)
      : Pass(direction, input, first, training), first_cell_(first.cell) {
    const Tensor& projection = direction.weights.projection;
    if (training) {
      cell_states_ = NewMatrix(steps_.rows(), size_, input);
      results_.saved = {gates_of_input_, cell_states_};
    } else {
      results_.last.cell = cell_states_ = first.cell.clone();  // updated in place
    }
    cells_ = Matrix(cell_states_);
    if (!projection.defined()) return;
    const Tensor unprojected = NewMatrix(steps_.rows(), size_, input);
    unprojected_ = Matrix(unprojected);
    projection_ = Matrix(projection).Transposed();
    results_.saved.push_back(unprojected);
  }

 private:
  void Finish() override {
    if (training_) results_.last.cell = Last(cell_states_);
  }

  void Step(const Part& part) override {
    static const ops::Row &infer = ops::RowOf("xpud::lstm_step"),
                          &train = ops::RowOf("xpud::lstm_step_training");
    const Matrix gates = InputGates(part);
    Product(gates, HiddenBefore(part), hidden_weight_, gates);
    const Matrix hidden = unprojected_.IsPresent() ? unprojected_.Rows(part.row, part.count) : OutputOf(part);
    const Matrix in = Gate(gates, 0, size_), forget = Gate(gates, 1, size_), cell = Gate(gates, 2, size_),
                 out = Gate(gates, 3, size_);
    if (training_) {
      Send(train, {hidden, cells_.Rows(part.row, part.count), in, forget, cell, out},
           {in, forget, cell, out, Before(part, cells_, first_cell_)});
    } else {
      const Matrix state = cells_.Rows(part.item, part.count);
      Send(infer, {hidden, state}, {in, forget, cell, out, state});
    }
    if (unprojected_.IsPresent()) Product(OutputOf(part), hidden, projection_);
  }

  const Matrix first_cell_;
  Tensor cell_states_;
  Matrix cells_, unprojected_, projection_;
};

// Saves the input's parts of the gates, of which "new" is replaced by its value, and the hidden parts, of
// which "reset" and "update" are.
class GruPass final : public Pass {
 public:
  GruPass(const Direction& direction, const Tensor& input, const State& first, bool training)
      : Pass(direction, input, first, training) {
    gates_of_hidden_ = NewMatrix(training ? steps_.rows() : steps_.batch(), 3 * size_, input);
    if (training) results_.saved = {gates_of_input_, gates_of_hidden_};
    const Tensor& bias = direction.weights.hidden_bias;
    if (bias.defined()) bias_ = Matrix(bias.unsqueeze(0));
  }

 private:
  void Step(const Part& part) override {
    static const ops::Row &infer = ops::RowOf("xpud::gru_step"),
                          &train = ops::RowOf("xpud::gru_step_training");
    const Matrix before = HiddenBefore(part), gates = InputGates(part);
    const Matrix hidden = Matrix(gates_of_hidden_).Rows(training_ ? part.row : part.item, part.count);
    Product(hidden, before, hidden_weight_, bias_);
    const Matrix reset = Gate(hidden, 0, size_), update = Gate(hidden, 1, size_),
                 fresh = Gate(gates, 2, size_);
    const std::initializer_list<Matrix> inputs = {
        Gate(gates, 0, size_), Gate(gates, 1, size_), fresh, reset, update, Gate(hidden, 2, size_), before};
    if (training_) {
      Send(train, {OutputOf(part), reset, update, fresh}, inputs);
    } else {
      Send(infer, {OutputOf(part)}, inputs);
    }
  }

  Tensor gates_of_hidden_;
  Matrix bias_;
};

// ---- backward ----

// Goes through the steps from the last one. The gradients of the states are updated in place: rows of
// sequences that have not begun keep those of the last state, and rows of those that are done are gradients
// of the first.
class Reverse : public Walk {
 public:
  Reverse(const Direction& direction, const Tensor& input, const State& first, const Tensor& output,
          c10::ArrayRef<Tensor> saved, const Tensor& grad_output, const State& grad_last)
      : Walk(direction, input),
        size_(direction.weights.hidden.size(0) / GatesOf(direction.kind)),
        input_(input),
        first_(first),
        output_tensor_(output),
        saved_(saved),
        output_(output),
        hidden_weight_(direction.weights.hidden),
        grad_output_(grad_output.defined() ? Matrix(grad_output) : Matrix()) {
    hidden_ = Owned(grad_last.hidden, first.hidden);
    result_.first.hidden = hidden_;
    sums_ = NewMatrix(steps_.rows(), GatesOf(direction.kind) * size_, input);
  }
  virtual ~Reverse() = default;

  Gradients Run(bool needs_input, bool needs_weights) {
    const int64_t last = steps_.count() - 1;
    if (grad_output_.IsPresent()) Add(HiddenAt(last), RowsAt(grad_output_, last), device_);
    for (int64_t k = last; k >= 0; --k) {
      const bool next_fits = k > 0 && SizeAt(k - 1) == SizeAt(k) && grad_output_.IsPresent();
      StepBack(k, next_fits ? RowsAt(grad_output_, k - 1) : Matrix());
      if (k > 0 && !next_fits && grad_output_.IsPresent())
        Add(HiddenAt(k - 1), RowsAt(grad_output_, k - 1), device_);
    }
    if (needs_input) result_.input = InputGradient();
    if (needs_weights) WeightGradients(result_.weights);
    return std::move(result_);
  }

 protected:
  // Computes the gradients of a step's sums, and replaces those of the states after it by those of the states
  // before it. Adds `addend` to that of the hidden state, if it is present.
  virtual void StepBack(int64_t k, const Matrix& addend) = 0;
  virtual Tensor InputGradient() { return at::mm(sums_, direction_.weights.input); }
  virtual void WeightGradients(Weights& gradients) {
    gradients.input = at::mm(sums_.t(), input_);
    gradients.hidden = HiddenWeightGradient();
    if (direction_.weights.hidden_bias.defined()) gradients.input_bias = gradients.hidden_bias = sums_.sum(0);
  }

  static Tensor Owned(const Tensor& gradient, const Tensor& like) {
    return gradient.defined() ? gradient.clone(at::MemoryFormat::Contiguous)
                              : at::zeros_like(like, like.options(), at::MemoryFormat::Contiguous);
  }
  Matrix HiddenAt(int64_t k) const { return Matrix(hidden_).Rows(0, SizeAt(k)); }
  Matrix SumsAt(int64_t k) const { return RowsAt(Matrix(sums_), k); }
  Matrix SavedRows(size_t which, const Part& part) const {
    return Matrix(saved_[which]).Rows(part.row, part.count);
  }

  // The gradients of the sums of all steps, times the hidden states before them.
  Tensor HiddenWeightGradient() const {
    if (!steps_.are_equal()) return at::mm(sums_.t(), HiddenBefore());
    const int64_t batch = steps_.batch(), rest = steps_.rows() - batch;
    const Tensor gradient = NewMatrix(sums_.size(1), output_.columns(), sums_);
    const Matrix out(gradient);
    Product(out, SumsAt(0).Transposed(), Matrix(first_.hidden));
    if (rest == 0) return gradient;
    const int64_t later = direction_.reversed ? 0 : batch, earlier = batch - later;
    Product(out, Matrix(sums_).Rows(later, rest).Transposed(), output_.Rows(earlier, rest), out);
    return gradient;
  }

  const int64_t size_;  // of a gate
  const Tensor& input_;
  const State& first_;
  const Tensor& output_tensor_;
  const c10::ArrayRef<Tensor> saved_;
  const Matrix output_, hidden_weight_, grad_output_;
  Tensor hidden_;  // the gradient of the hidden state
  Tensor sums_;    // the gradients of the gates' sums
  Gradients result_;

 private:
  // The hidden state before each row's step, if the steps' sizes differ.
  Tensor HiddenBefore() const {
    const Tensor index = at::empty({steps_.rows()}, at::kLong);
    int64_t* const at = index.data_ptr<int64_t>();
    for (int64_t k = 0; k < steps_.count(); ++k) {
      ForEachPart(k, [&](const Part& part) {
        for (int64_t i = 0; i < part.count; ++i)
          at[part.row + i] = part.previous >= 0 ? steps_.batch() + part.previous + i : part.item + i;
      });
    }
    return at::cat({first_.hidden, output_tensor_}).index_select(0, index.to(output_tensor_.device()));
  }
};

class SimpleReverse final : public Reverse {
 public:
  using Reverse::Reverse;

 private:
  void StepBack(int64_t k, const Matrix& addend) override {
    static const ops::Row &tanh = ops::RowOf("tanh_backward"), &relu = ops::RowOf("threshold_backward");
    const Matrix hidden = HiddenAt(k), sums = SumsAt(k), output = RowsAt(output_, k);
    if (direction_.kind == Kind::kTanh) {
      Send(tanh, {sums}, {hidden, output});
    } else {
      Send(relu, {sums}, {hidden, output, Matrix(0.0)});
    }
    Product(hidden, sums, hidden_weight_, addend);
  }
};

class LstmReverse final : public Reverse {
 public:
  LstmReverse(const Direction& direction, const Tensor& input, const State& first, const Tensor& output,
              c10::ArrayRef<Tensor> saved, const Tensor& grad_output, const State& grad_last)
      : Reverse(direction, input, first, output, saved, grad_output, grad_last) {
    result_.first.cell = cell_ = Owned(grad_last.cell, first.cell);
    if (!direction.weights.projection.defined()) return;
    grad_projected_ = NewMatrix(steps_.rows(), output_.columns(), input);
    grad_unprojected_ = NewMatrix(steps_.batch(), size_, input);
  }

 private:
  void StepBack(int64_t k, const Matrix& addend) override {
    static const ops::Row& row = ops::RowOf("xpud::lstm_step_backward");
    const Matrix hidden = HiddenAt(k), sums = SumsAt(k);
    Matrix unprojected = hidden;
    if (grad_unprojected_.defined()) {
      unprojected = Matrix(grad_unprojected_).Rows(0, SizeAt(k));
      Copy(RowsAt(Matrix(grad_projected_), k), hidden, device_);
      Product(unprojected, hidden, Matrix(direction_.weights.projection));
    }
    ForEachPart(k, [&](const Part& part) {
      const Matrix out = Matrix(sums_).Rows(part.row, part.count), gates = SavedRows(0, part),
                   cell = Matrix(cell_).Rows(part.item, part.count);
      Send(row, {Gate(out, 0, size_), Gate(out, 1, size_), Gate(out, 2, size_), Gate(out, 3, size_), cell},
           {Gate(gates, 0, size_), Gate(gates, 1, size_), Gate(gates, 2, size_), Gate(gates, 3, size_),
            Before(part, Matrix(saved_[1]), Matrix(first_.cell)), SavedRows(1, part),
            unprojected.Rows(part.item, part.count), cell});
    });
    Product(hidden, sums, hidden_weight_, addend);
  }

  void WeightGradients(Weights& gradients) override {
    Reverse::WeightGradients(gradients);
    if (grad_projected_.defined()) gradients.projection = at::mm(grad_projected_.t(), saved_[2]);
  }

  Tensor cell_;              // the gradient of the cell state
  Tensor grad_projected_;    // of all steps
  Tensor grad_unprojected_;  // of one step
};

// `sums_` has the gradients of the hidden parts. Those of the input's parts differ only for "new".
class GruReverse final : public Reverse {
 public:
  GruReverse(const Direction& direction, const Tensor& input, const State& first, const Tensor& output,
             c10::ArrayRef<Tensor> saved, const Tensor& grad_output, const State& grad_last)
      : Reverse(direction, input, first, output, saved, grad_output, grad_last),
        fresh_(NewMatrix(steps_.rows(), size_, input)) {}

 private:
  void StepBack(int64_t k, const Matrix& addend) override {
    static const ops::Row& row = ops::RowOf("xpud::gru_step_backward");
    const Matrix hidden = HiddenAt(k), sums = SumsAt(k);
    ForEachPart(k, [&](const Part& part) {
      const Matrix gates = SavedRows(0, part), of_hidden = SavedRows(1, part),
                   out = Matrix(sums_).Rows(part.row, part.count), state = hidden.Rows(part.item, part.count);
      Send(row,
           {Gate(out, 0, size_), Gate(out, 1, size_), Matrix(fresh_).Rows(part.row, part.count),
            Gate(out, 2, size_), state},
           {Gate(of_hidden, 0, size_), Gate(of_hidden, 1, size_), Gate(gates, 2, size_),
            Gate(of_hidden, 2, size_), Before(part, output_, Matrix(first_.hidden)), state,
            addend.IsPresent() ? addend.Rows(part.item, part.count) : Matrix(0.0)});
    });
    Product(hidden, sums, hidden_weight_, hidden);
  }

  Tensor InputGradient() override {
    const auto [both, fresh] = InputWeights(direction_.weights.input);
    return at::addmm(at::mm(sums_.narrow(1, 0, 2 * size_), both), fresh_, fresh);
  }

  void WeightGradients(Weights& gradients) override {
    gradients.input = at::empty_like(direction_.weights.input, at::MemoryFormat::Contiguous);
    const Matrix out(gradients.input), input(input_);
    Product(out.Rows(0, 2 * size_), Matrix(sums_).Columns(0, 2 * size_).Transposed(), input);
    Product(out.Rows(2 * size_, size_), Matrix(fresh_).Transposed(), input);
    gradients.hidden = HiddenWeightGradient();
    if (!direction_.weights.hidden_bias.defined()) return;
    gradients.hidden_bias = sums_.sum(0);
    gradients.input_bias = at::cat({gradients.hidden_bias.narrow(0, 0, 2 * size_), fresh_.sum(0)});
  }

  // Those of reset and update, and those of new.
  std::pair<Tensor, Tensor> InputWeights(const Tensor& weight) const {
    return {weight.narrow(0, 0, 2 * size_), weight.narrow(0, 2 * size_, size_)};
  }

  Tensor fresh_;  // the gradients of the input's parts of "new"
};

}  // namespace

Steps::Steps(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
  begins_.reserve(sizes_.size());
  for (const int64_t size : sizes_) {
    begins_.push_back(rows_);
    rows_ += size;
  }
}

Results Forward(const Direction& direction, const Tensor& input, const State& first, bool training) {
  switch (direction.kind) {
    case Kind::kLstm:
      return LstmPass(direction, input, first, training).Run();
    case Kind::kGru:
      return GruPass(direction, input, first, training).Run();
    default:
      return SimplePass(direction, input, first, training).Run();
  }
}

Gradients Backward(const Direction& direction, const Tensor& input, const State& first, const Tensor& output,
                   c10::ArrayRef<Tensor> saved, const Tensor& grad_output, const State& grad_last,
                   bool needs_input, bool needs_weights) {
  const auto run = [&](auto&& reverse) { return reverse.Run(needs_input, needs_weights); };
  switch (direction.kind) {
    case Kind::kLstm:
      return run(LstmReverse(direction, input, first, output, saved, grad_output, grad_last));
    case Kind::kGru:
      return run(GruReverse(direction, input, first, output, saved, grad_output, grad_last));
    default:
      return run(SimpleReverse(direction, input, first, output, saved, grad_output, grad_last));
  }
}

}  // namespace xpud::shim::rnn
