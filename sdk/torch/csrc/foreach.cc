// _foreach_ operators: one map command for each tensor, in a loop below one call of PyTorch's dispatcher.
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include "sdk/torch/csrc/fallback.h"
#include "sdk/torch/csrc/map.h"
#include "sdk/torch/csrc/variants.h"

namespace xpud::shim {

namespace {

// One argument of a _foreach_ operator. Input(i) is the input for the i-th tensor.
class ForeachArgument {
 public:
  explicit ForeachArgument(const c10::IValue& value) {
    if (value.isTensorList())
      tensors_ = value.toTensorVector();
    else if (value.isTensor())
      tensors_ = {value.toTensor()}, repeated_ = true;
    else if (value.isScalar())
      scalars_ = {value.toScalar()}, repeated_ = true;
    else if (value.isList()) {
      for (const c10::IValue& scalar : value.toListRef()) scalars_.push_back(scalar.toScalar());
    }
  }
  size_t size() const { return tensors_.empty() ? scalars_.size() : tensors_.size(); }
  bool repeated() const { return repeated_; }
  const at::Tensor& tensor(size_t index) const { return tensors_[repeated_ ? 0 : index]; }
  MapInput Input(size_t index, bool promotes) const {
    if (!tensors_.empty()) return MapInput(tensor(index));
    return MapInput(scalars_[repeated_ ? 0 : index], promotes);
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<at::Scalar> scalars_;
  bool repeated_ = false;
};

class BoxedForeach final : public c10::OperatorKernel {
 public:
  BoxedForeach(const ops::Row& row, bool in_place) : row_(row), in_place_(in_place) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    std::vector<ForeachArgument> arguments;
    for (const c10::IValue& value : torch::jit::last(*stack, count)) arguments.emplace_back(value);
    if (!AreEven(arguments) || count > row_.inputs) return Compose(op, stack);
    std::vector<at::Tensor> outs(arguments[0].size());
    for (size_t i = 0; i < outs.size(); ++i) {
      std::array<MapInput, ops::kMaxInputs> inputs;
      for (size_t k = 0; k < count; ++k)
        inputs[k] = arguments[k].Input(i, Promotes(op.schema().arguments()[k]));
      for (size_t k = count; k < row_.inputs; ++k)
        inputs[k] = MapInput(at::Scalar(1), false);  // alpha, if this form has none
      if (in_place_) outs[i] = arguments[0].tensor(i);
      if (RunMap(row_, {inputs.data(), row_.inputs}, outs[i])) continue;
      TORCH_CHECK(i == 0, "xpud: ", toString(op.operator_name()), ": the device has no kernel for tensor ", i,
                  ", but had one for those before it");
      return Compose(op, stack);
    }
    torch::jit::drop(*stack, count);
    if (!in_place_) stack->emplace_back(std::move(outs));
  }

 private:
  // `alpha`, `value` and `weight` do not take part in type promotion.
  static bool Promotes(const c10::Argument& argument) {
    return argument.name() != "alpha" && argument.name() != "value" && argument.name() != "weight";
  }
  static bool AreEven(const std::vector<ForeachArgument>& arguments) {
    for (const ForeachArgument& argument : arguments) {
      if (!argument.repeated() && argument.size() != arguments[0].size()) return false;
    }
    return arguments[0].size() > 0;
  }
  // Runs PyTorch's own loop over the single operator.
  static void Compose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                       stack);  // the composite loop also serves CPU
  }

  const ops::Row& row_;
  bool in_place_;
};

const ops::Row* RowOfBase(const std::string& base) {
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kMap || row.outputs != 1 || row.types == ops::TypeRule::kAny ||
        row.types == ops::TypeRule::kSame)
      continue;
    for (const std::string& name : OverloadsOf(row)) {
      if (name.substr(0, name.find('.')) == base) return &row;
    }
  }
  return nullptr;
}

}  // namespace

void RegisterForeach(const VariantIndex& index) {
  static auto* kept = new std::vector<c10::RegistrationHandleRAII>;
  for (const auto& [name, overloads] : index.by_name()) {
    if (!name.starts_with("aten::_foreach_")) continue;
    std::string base = name.substr(std::string_view("aten::_foreach_").size());
    const bool in_place = base.ends_with('_');
    if (in_place) base.pop_back();
    const ops::Row* row = RowOfBase(base);
    if (row == nullptr) continue;
    for (const c10::OperatorHandle& op : overloads) {
      const bool tensor_of_scalars =
          op.schema().arguments().back().name() == "scalars" && op.operator_name().overload_name == "Tensor";
      if (VariantOf(op.schema()) == Variant::kOut || tensor_of_scalars) continue;
      if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
      kept->push_back(c10::Dispatcher::singleton().registerImpl(
          op.operator_name(), c10::DispatchKey::PrivateUse1,
          c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedForeach>(*row, in_place)),
          std::nullopt, nullptr, "xpud's op table"));
    }
  }
}

}  // namespace xpud::shim
