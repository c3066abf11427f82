// _foreach_ operators. The tensors of a list that need no type promotion or broadcasting are one command, in
// which the row of the base name is applied to each of them. Other lists run tensor by tensor.
#include "sdk/torch/csrc/table/foreach.h"

#include <ATen/ATen.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "proto/ops/families/foreach.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/list_command.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {

namespace {

// One argument of a _foreach_ operator. Input(i) is the input for the i-th tensor.
class ForeachArgument {
 public:
  explicit ForeachArgument(at::TensorList tensors) : tensors_(tensors.vec()) {}
  explicit ForeachArgument(const at::Scalar& scalar) : scalars_{scalar}, repeated_(true) {}
  ForeachArgument(const c10::Argument& argument, const c10::IValue& value)
      : promotes_(argument.name() != "value" && argument.name() != "weight"),
        alpha_(argument.name() == "alpha") {
    if (value.isTensorList()) {
      tensors_ = value.toTensorVector();
    } else if (value.isTensor() && argument.name() == "scalars") {
      SetScalars(value.toTensor());
    } else if (value.isTensor()) {
      tensors_ = {value.toTensor()}, repeated_ = true;
    } else if (value.isScalar()) {
      scalars_ = {value.toScalar()}, repeated_ = true;
    } else if (value.isList()) {
      for (const c10::IValue& scalar : value.toListRef()) scalars_.push_back(scalar.toScalar());
    }
  }
  size_t size() const { return tensors_.empty() ? scalars_.size() : tensors_.size(); }
  bool repeated() const { return repeated_; }
  bool has_tensors() const { return !tensors_.empty(); }
  bool is_list() const { return has_tensors() && !repeated_; }
  const at::Tensor& tensor(size_t index) const { return tensors_[repeated_ ? 0 : index]; }
  MapInput Input(size_t index) const {
    if (has_tensors()) return MapInput(tensor(index));
    const at::Scalar& scalar = scalars_[repeated_ ? 0 : index];
    return alpha_ ? MapInput::Alpha(scalar) : MapInput(scalar, promotes_);
  }

 private:
  // Scalars in a tensor of the CPU. Others are refused by PyTorch's own loop.
  void SetScalars(const at::Tensor& tensor) {
    if (!tensor.is_cpu() || tensor.dim() != 1) return;
    for (int64_t i = 0; i < tensor.size(0); ++i) scalars_.push_back(tensor[i].item());
  }

  std::vector<at::Tensor> tensors_;
  std::vector<at::Scalar> scalars_;
  bool repeated_ = false, promotes_ = true, alpha_ = false;
};

// The call of one operator.
struct ForeachCall {
  const ops::Row& row;
  bool in_place;
  std::vector<ForeachArgument> arguments;  // the first inputs of the row
  const ForeachArgument* like = nullptr;   // the tensors that the results are like, or that are written
  size_t size = 0;                         // of the lists

  const at::Tensor& Like(size_t i) const { return like->tensor(i); }
  bool AreEven() const {
    return size > 0 && std::ranges::all_of(arguments, [&](const ForeachArgument& argument) {
             return argument.repeated() || argument.size() == size;
           });
  }
  MapInput Input(size_t input, size_t i) const {
    // The factor of the last input, which not every form has.
    return input < arguments.size() ? arguments[input].Input(i) : MapInput::Alpha(at::Scalar(1));
  }
  bool IsRepeated(size_t input) const { return input >= arguments.size() || arguments[input].repeated(); }
};

// Sends a call as commands of the family foreach.
class ForeachCommand {
 public:
  explicit ForeachCommand(const ForeachCall& call)
      : call_(call), copies_(call.row.types == ops::TypeRule::kAny) {}

  // Returns false, and sends nothing, if an element needs promotion, broadcasting or a check of overlaps.
  bool Run(std::vector<at::Tensor>& outs);

 private:
  // What is sent of an element.
  enum class Form { kLine, kStrided, kOther };

  Form FormOf(size_t i) const;
  Form FormOfTensor(const at::Tensor& tensor, const at::Tensor& like) const;
  // Returns true for an input that is one number for the whole tensor.
  bool IsScalar(const MapInput& input, const at::Tensor& like, bool repeated) const;
  bool IsServed(const MapInput& scalar, const at::Tensor& like) const;
  std::optional<TensorRef> ScalarRef(const MapInput& input, const at::Tensor& like) const {
    return copies_ ? ToImmediate(input.scalar) : ScalarInput(input, like);
  }
  void SendOf(at::ScalarType type, std::vector<at::Tensor>& outs) const;
  void AddElement(size_t i, const at::Tensor& out, ListCommand& command) const;
  TensorRef Describe(const at::Tensor& tensor, size_t i, ListCommand& command) const {
    return forms_[i] == Form::kLine ? command.Line(tensor) : shim::Describe(tensor);
  }

  const ForeachCall& call_;
  const bool copies_;  // from any dtype to any
  std::vector<Form> forms_;
};

bool ForeachCommand::IsScalar(const MapInput& input, const at::Tensor& like, bool repeated) const {
  if (input.tensor == nullptr) return true;
  return !copies_ && input.tensor->dim() == 0 && (repeated || like.dim() > 0);
}

bool ForeachCommand::IsServed(const MapInput& scalar, const at::Tensor& like) const {
  if (scalar.tensor != nullptr && IsOnDevice(*scalar.tensor)) {
    // Part of what is written: refused elsewhere.
    if (call_.in_place && scalar.tensor->is_alias_of(like)) return false;
    if (scalar.tensor->device() != like.device() || scalar.tensor->is_neg()) return false;
  }
  return ScalarRef(scalar, like).has_value();
}

ForeachCommand::Form ForeachCommand::FormOfTensor(const at::Tensor& tensor, const at::Tensor& like) const {
  if (tensor.is_same(like)) return Form::kLine;
  if (tensor.device() != like.device() || tensor.is_neg() || !IsOnDevice(tensor)) return Form::kOther;
  if (copies_ ? !IsSupported(tensor.scalar_type()) : tensor.scalar_type() != like.scalar_type())
    return Form::kOther;
  // Another view of the memory that is written would need a check.
  if (call_.in_place && tensor.is_alias_of(like) &&
      (tensor.storage_offset() != like.storage_offset() || tensor.strides() != like.strides()))
    return Form::kOther;
  if (AreLinesAlike(tensor, like)) return Form::kLine;
  return call_.in_place && tensor.sizes() == like.sizes() && tensor.dim() <= ops::kMaxRank ? Form::kStrided
                                                                                           : Form::kOther;
}

ForeachCommand::Form ForeachCommand::FormOf(size_t i) const {
  const at::Tensor& like = call_.Like(i);
  const auto type = ToDType(like.scalar_type());
  if (!IsOnDevice(like) || like.is_neg() || !type.has_value() || !like.is_non_overlapping_and_dense() ||
      like.device() != call_.Like(0).device())
    return Form::kOther;
  if (!copies_ && (!ops::Contains(call_.row.dtypes, *type) ||
                   (call_.row.types == ops::TypeRule::kFloat && !ops::IsFloating(*type))))
    return Form::kOther;
  Form form = Form::kLine;
  for (const ForeachArgument& argument : call_.arguments) {
    const MapInput input = argument.Input(i);
    if (SubtractsBool(call_.row, input)) return Form::kOther;  // refused elsewhere
    if (IsScalar(input, like, argument.repeated())) {
      if (!IsServed(input, like)) return Form::kOther;
      continue;
    }
    const Form other = argument.repeated() ? Form::kOther : FormOfTensor(*input.tensor, like);
    if (other == Form::kOther) return other;
    if (other == Form::kStrided) form = other;
  }
  return form;
}

void ForeachCommand::AddElement(size_t i, const at::Tensor& out, ListCommand& command) const {
  command.Add(0, Describe(out, i, command));
  for (size_t input = 0; input < call_.row.inputs; ++input) {
    if (call_.IsRepeated(input)) continue;
    const MapInput one = call_.Input(input, i);
    const bool scalar = IsScalar(one, out, /*repeated=*/false);
    command.Add(1 + input, scalar ? *ScalarRef(one, out) : Describe(*one.tensor, i, command));
  }
  command.EndElement(DeviceIndexOf(out));
}

// Sends the elements of one dtype.
void ForeachCommand::SendOf(at::ScalarType type, std::vector<at::Tensor>& outs) const {
  static const ops::Row& foreach = ops::RowOf("xpud::foreach");
  const std::vector<ops::Number> attributes = ops::AttributesOf<ops::ForeachCall>({.row = call_.row.number});
  ListCommand command(foreach, *ToDType(type), attributes, call_.size);
  const at::Tensor* first = nullptr;
  for (size_t i = 0; i < call_.size; ++i) {
    const at::Tensor& like = call_.Like(i);
    if (like.scalar_type() != type || like.numel() == 0) continue;
    if (first == nullptr) {
      first = &like;
      for (size_t input = 0; input < call_.row.inputs; ++input)
        if (call_.IsRepeated(input)) command.Share(1 + input, *ScalarRef(call_.Input(input, i), like));
    }
    AddElement(i, outs[i], command);
  }
  if (first != nullptr) command.Send(DeviceIndexOf(*first));
}

// Elements of one dtype have the same kind of shared scalars beside them, or they are other ones.
bool ForeachCommand::Run(std::vector<at::Tensor>& outs) {
  static const ops::Row& foreach = ops::RowOf("xpud::foreach");
  if (!IsKnown(foreach) || call_.row.inputs > 5) return false;
  std::vector<at::ScalarType> types;
  for (size_t i = 0; i < call_.size; ++i) {
    forms_.push_back(FormOf(i));
    if (forms_.back() == Form::kOther) return false;
    const at::ScalarType type = call_.Like(i).scalar_type();
    if (std::ranges::find(types, type) == types.end()) types.push_back(type);
  }
  for (size_t i = 0; i < call_.size; ++i) {
    const at::Tensor& like = call_.Like(i);
    if (call_.in_place)
      outs[i] = like;
    else if (like.is_contiguous())
      outs[i] = MakeEmpty(like.sizes(), like.scalar_type(), like.device());
    else
      outs[i] = at::empty_like(like);
  }
  for (const at::ScalarType type : types) SendOf(type, outs);
  return true;
}

class BoxedForeach final : public c10::OperatorKernel {
 public:
  BoxedForeach(const ops::Row& row, bool in_place) : row_(row), in_place_(in_place) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    ForeachCall call = {.row = row_, .in_place = in_place_, .arguments = {}};
    const auto values = torch::jit::last(*stack, count);
    for (size_t k = 0; k < count; ++k) call.arguments.emplace_back(op.schema().arguments()[k], values[k]);
    const auto like = std::ranges::find_if(call.arguments, &ForeachArgument::is_list);
    if (like == call.arguments.end() || count > row_.inputs) return Compose(op, stack);
    call.like = &*like;
    call.size = like->size();
    if (!call.AreEven()) return Compose(op, stack);
    std::vector<at::Tensor> outs(call.size);
    if (!ForeachCommand(call).Run(outs) && !RunEach(op, call, outs)) return Compose(op, stack);
    torch::jit::drop(*stack, count);
    if (!in_place_) stack->emplace_back(std::move(outs));
  }

 private:
  // One map for each tensor. Returns false if the device has no kernel for the first of them.
  bool RunEach(const c10::OperatorHandle& op, const ForeachCall& call, std::vector<at::Tensor>& outs) const {
    for (size_t i = 0; i < outs.size(); ++i) {
      std::array<MapInput, ops::kMaxInputs> inputs;
      for (size_t k = 0; k < row_.inputs; ++k) inputs[k] = call.Input(k, i);
      if (in_place_) outs[i] = call.Like(i);
      if (RunMap(row_, {inputs.data(), row_.inputs}, outs[i])) continue;
      TORCH_CHECK(i == 0, "xpud: ", toString(op.operator_name()), ": the device has no kernel for tensor ", i,
                  ", but had one for those before it");
      return false;
    }
    return true;
  }
  // Runs PyTorch's own loop over the single operator.
  static void Compose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const BelowAutocast scope;
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

// ---- operators whose arguments are not the inputs of their row

using at::TensorList;
constexpr c10::DispatchKeySet kComposite(c10::DispatchKey::CPU);  // the composite loop also serves CPU

// Writes all tensors of `self`. Returns false if that needs PyTorch's loop.
bool Write(const ops::Row& row, TensorList self, ForeachArgument from) {
  const ForeachArgument target(self);
  ForeachCall call = {.row = row, .in_place = true, .arguments = {}};
  call.arguments.push_back(std::move(from));
  call.like = &target;
  call.size = self.size();
  std::vector<at::Tensor> outs(self.size());
  return call.AreEven() && ForeachCommand(call).Run(outs);
}

void ForeachCopy(TensorList self, TensorList src, bool non_blocking) {
  static const ops::Row& copy = ops::RowOf("_copy_from");
  if (!Write(copy, self, ForeachArgument(src)))
    at::_ops::_foreach_copy_::redispatch(kComposite, self, src, non_blocking);
}

void ForeachZero(TensorList self) {
  static const ops::Row& fill = ops::RowOf("fill.Scalar");
  if (!Write(fill, self, ForeachArgument(at::Scalar(0))))
    at::_ops::_foreach_zero_::redispatch(kComposite, self);
}

// Sends reductions of whole tensors. Returns nothing, and sends nothing, if a tensor is not served.
std::optional<std::vector<at::Tensor>> Reduce(const ops::Row& row, TensorList self,
                                              std::optional<at::ScalarType> type) {
  static const ops::Row& reduce = ops::RowOf("xpud::foreach_reduce");
  if (self.empty() || !IsKnown(reduce) || !IsKnown(row)) return std::nullopt;
  const at::ScalarType out_type = type.value_or(self[0].scalar_type());
  if (!IsSupported(out_type, row.dtypes)) return std::nullopt;
  for (const at::Tensor& tensor : self) {
    if (!IsOnDevice(tensor) || tensor.is_neg() || !IsSupported(tensor.scalar_type(), row.dtypes) ||
        tensor.device() != self[0].device() || tensor.dim() > ops::kMaxRank || tensor.numel() == 0 ||
        type.value_or(tensor.scalar_type()) != out_type ||
        at::promote_types(tensor.scalar_type(), out_type) != out_type)
      return std::nullopt;
  }
  const std::vector<ops::Number> attributes = ops::AttributesOf<ops::ForeachReduceCall>({.row = row.number});
  ListCommand command(reduce, *ToDType(out_type), attributes, self.size());
  std::vector<at::Tensor> outs;
  for (const at::Tensor& tensor : self) {
    outs.push_back(MakeEmpty({}, out_type, tensor.device()));
    command.Add(0, Describe(outs.back()));
    const bool line = row.types != ops::TypeRule::kIndex && tensor.is_non_overlapping_and_dense();
    command.Add(1, line ? command.Line(tensor) : Describe(tensor));
    command.EndElement(DeviceIndexOf(tensor));
  }
  command.Send(DeviceIndexOf(self[0]));
  return outs;
}

const ops::Row* NormOf(double order) {
  static const ops::Row &one = ops::RowOf("xpud::norm_1"), &two = ops::RowOf("linalg_vector_norm"),
                        &inf = ops::RowOf("xpud::norm_inf");
  return order == 1 ? &one : order == 2 ? &two : order == INFINITY ? &inf : nullptr;
}

std::vector<at::Tensor> ForeachNorm(TensorList self, const at::Scalar& ord,
                                    std::optional<at::ScalarType> dtype) {
  const ops::Row* const row = ord.isComplex() ? nullptr : NormOf(ord.toDouble());
  if (row != nullptr) {
    if (auto norms = Reduce(*row, self, dtype)) return *std::move(norms);
  }
  return at::_ops::_foreach_norm_Scalar::redispatch(kComposite, self, ord, dtype);
}

std::vector<at::Tensor> ForeachMax(TensorList self) {
  static const ops::Row& row = ops::RowOf("amax");
  if (auto largest = Reduce(row, self, std::nullopt)) return *std::move(largest);
  return at::_ops::_foreach_max::redispatch(kComposite, self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_foreach_copy_", XPUD_FN(ForeachCopy));
  m.impl("_foreach_zero_", XPUD_FN(ForeachZero));
  m.impl("_foreach_norm.Scalar", XPUD_FN(ForeachNorm));
  m.impl("_foreach_max", XPUD_FN(ForeachMax));
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
      if (VariantOf(op.schema()) == Variant::kOut) continue;
      if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
      kept->push_back(c10::Dispatcher::singleton().registerImpl(
          op.operator_name(), c10::DispatchKey::PrivateUse1,
          c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedForeach>(*row, in_place)),
          std::nullopt, nullptr, "xpud's op table"));
    }
  }
}

}  // namespace xpud::shim
