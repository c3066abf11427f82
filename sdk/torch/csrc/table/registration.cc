#include "sdk/torch/csrc/table/registration.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/variants.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/fallback/host_call.h"
#include "sdk/torch/csrc/table/boxed_op.h"
#include "sdk/torch/csrc/table/boxed_reduce.h"
#include "sdk/torch/csrc/table/foreach.h"

namespace xpud::shim {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

// ---- kernels of maps ----

// Runs any map whose arguments are, in order, the inputs of the row, all of them tensors or numbers.
class BoxedMap final : public c10::OperatorKernel {
 public:
  BoxedMap(const ops::Row& row, Variant variant) : row_(row), variant_(variant) {}

  void operator()(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const auto& arguments = op.schema().arguments();
    const size_t count = arguments.size() - (variant_ == Variant::kOut ? 1 : 0);
    const auto values = torch::jit::last(*stack, arguments.size());
    std::array<MapInput, ops::kMaxInputs> inputs;
    for (size_t i = 0; i < count; ++i) {
      if (!ToInput(arguments[i], values[i], inputs[i])) return Fallback(op, stack);
    }
    at::Tensor out;
    if (variant_ == Variant::kInPlace) out = values[0].toTensor();
    if (variant_ == Variant::kOut) out = values[count].toTensor();
    if (count > row_.inputs || !RunMap(row_, {inputs.data(), count}, out)) return Fallback(op, stack);
    torch::jit::drop(*stack, arguments.size());
    stack->emplace_back(std::move(out));
  }

 private:
  static bool Promotes(const std::string& name) {
    return name == "other" || name == "self" || name == "exponent" || name == "min" || name == "max";
  }
  static bool ToInput(const c10::Argument& argument, const c10::IValue& value, MapInput& input) {
    if (value.isTensor()) {
      if (!value.toTensor().defined()) return false;
      input = MapInput(value.toTensor());
      return true;
    }
    if (!value.isScalar()) return false;  // None or a string: such rows are registered by hand
    input = argument.name() == "alpha" ? MapInput::Alpha(value.toScalar())
                                       : MapInput(value.toScalar(), Promotes(argument.name()));
    return true;
  }

  const ops::Row& row_;
  Variant variant_;
};

// The frequent signatures, unboxed: (Tensor), (Tensor, Tensor), (Tensor, Tensor, Scalar), functional and
// in-place.
struct MapKernel : c10::OperatorKernel {
  MapKernel(const ops::Row& row, const OperatorHandle& op) : row_(row), op_(op) {}

  template <class Result, class... Args>
  Result RunOr(std::span<const MapInput> inputs, at::Tensor& out, Args&&... args) {
    if (RunMap(row_, inputs, out)) [[likely]]
      return static_cast<Result>(out);
    Stack stack;
    torch::jit::push(stack, std::forward<Args>(args)...);
    Fallback(op_, &stack);
    out = stack[0].toTensor();
    return static_cast<Result>(out);
  }

  const ops::Row& row_;
  OperatorHandle op_;
};

struct Unary final : MapKernel {
  using MapKernel::MapKernel;
  at::Tensor operator()(const at::Tensor& self) {
    const MapInput inputs[] = {self};
    at::Tensor out;
    return RunOr<at::Tensor&&>(inputs, out, self);
  }
};

struct UnaryInPlace final : MapKernel {
  using MapKernel::MapKernel;
  at::Tensor& operator()(at::Tensor& self) {
    const MapInput inputs[] = {self};
    return RunOr<at::Tensor&>(inputs, self, self);
  }
};

struct Binary final : MapKernel {
  using MapKernel::MapKernel;
  at::Tensor operator()(const at::Tensor& self, const at::Tensor& other) {
    const MapInput inputs[] = {self, other};
    at::Tensor out;
    return RunOr<at::Tensor&&>(inputs, out, self, other);
  }
};

struct BinaryInPlace final : MapKernel {
  using MapKernel::MapKernel;
  at::Tensor& operator()(at::Tensor& self, const at::Tensor& other) {
    const MapInput inputs[] = {self, other};
    return RunOr<at::Tensor&>(inputs, self, self, other);
  }
};

struct BinaryScaled final : MapKernel {
  using MapKernel::MapKernel;
  at::Tensor operator()(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
    const MapInput inputs[] = {self, other, MapInput::Alpha(alpha)};
    at::Tensor out;
    return RunOr<at::Tensor&&>(inputs, out, self, other, alpha);
  }
};

struct BinaryScaledInPlace final : MapKernel {
  using MapKernel::MapKernel;
  at::Tensor& operator()(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
    const MapInput inputs[] = {self, other, MapInput::Alpha(alpha)};
    return RunOr<at::Tensor&>(inputs, self, self, other, alpha);
  }
};

// ---- variants of operators registered by hand ----

bool IsOneOf(const OperatorHandle& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op.operator_name().name) != names.end();
}

// Returns true if out= may have any dtype to which the result can be cast. Other operators require the
// result's dtype.
bool CastsOutput(const OperatorHandle& functional) {
  const bool whole = functional.operator_name().overload_name.empty();
  return IsOneOf(functional, {"aten::addr", "aten::bernoulli", "aten::cat", "aten::clamp", "aten::cumprod",
                              "aten::cumsum", "aten::div", "aten::mean", "aten::nansum", "aten::normal",
                              "aten::polygamma", "aten::prod", "aten::std", "aten::sum", "aten::var"}) ||
         (whole && IsOneOf(functional, {"aten::max", "aten::min"}));
}

// Returns true if out= may not even be one of the inputs.
bool WantsFreshOutput(const OperatorHandle& functional) {
  return IsOneOf(functional, {"aten::cat", "aten::gather", "aten::index_select", "aten::kthvalue",
                              "aten::linalg_cross", "aten::masked_select", "aten::take"});
}

// Runs in-place and out= variants: computes the functional result and copies it. Refuses targets that ATen
// refuses: on another device, of the wrong dtype, with elements that share memory, or with a partial overlap
// with an input.
class CopyingVariant final : public c10::OperatorKernel {
 public:
  CopyingVariant(const OperatorHandle& functional, Variant variant)
      : functional_(functional), variant_(variant) {}

  void operator()(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const BelowAutocast scope;
    const size_t total = op.schema().arguments().size();
    const size_t results = functional_.schema().returns().size();
    const size_t inputs = variant_ == Variant::kOut ? total - results : total;
    const auto values = torch::jit::last(*stack, total);
    std::vector<at::Tensor> targets;
    for (size_t i = 0; i < results; ++i) {
      targets.push_back(values[variant_ == Variant::kOut ? inputs + i : 0].toTensor());
    }
    const auto shares = [](const at::Tensor& target) {
      return at::has_internal_overlap(target) == at::MemOverlap::Yes;
    };
    // What the elements then have depends on the order in which the CPU writes them.
    if (MayWriteOverlap(op) && std::ranges::any_of(targets, shares)) [[unlikely]]
      return CallOnHost(op, stack);
    Stack inner(values.begin(), values.begin() + static_cast<ptrdiff_t>(inputs));
    for (const at::Tensor& target : targets) CheckOverlaps(target, inner);
    if (variant_ == Variant::kOut) ComputeInTypeOf(targets[0], inner);
    functional_.callBoxed(&inner);
    for (size_t i = 0; i < results; ++i) CheckTarget(inner[i].toTensor(), targets[i]);
    for (size_t i = 0; i < results; ++i) Store(inner[i].toTensor(), targets[i]);
    torch::jit::drop(*stack, total);
    for (at::Tensor& target : targets) stack->emplace_back(std::move(target));
  }

 private:
  void CheckOverlap(const at::Tensor& target, const at::Tensor& input) const {
    if (!input.defined()) return;
    if (variant_ == Variant::kOut && WantsFreshOutput(functional_))
      at::assert_no_overlap(target, input);
    else
      at::assert_no_partial_overlap(target, input);
  }
  void CheckOverlaps(const at::Tensor& target, const Stack& inputs) const {
    at::assert_no_internal_overlap(target);
    for (const c10::IValue& input : inputs) {
      if (input.isTensor()) CheckOverlap(target, input.toTensor());
      if (!input.isTensorList()) continue;
      for (const at::Tensor& tensor : input.toTensorVector()) CheckOverlap(target, tensor);
    }
  }

  // A reduction is computed in the dtype of out= unless another is given.
  void ComputeInTypeOf(const at::Tensor& target, Stack& inputs) const {
    if (!CastsOutput(functional_) || (inputs[0].isTensor() && inputs[0].toTensor().is_complex())) return;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (functional_.schema().arguments()[i].name() == "dtype" && inputs[i].isNone())
        inputs[i] = target.scalar_type();
    }
  }

  void CheckTarget(const at::Tensor& result, const at::Tensor& target) const {
    CheckSameDevice(result.device(), target.device());
    // all and any of uint8 return uint8 for compatibility with older programs. A bool target is also
    // accepted.
    if (result.scalar_type() == at::kByte && target.scalar_type() == at::kBool &&
        IsOneOf(functional_, {"aten::all", "aten::any"})) {
      return;
    }
    if (variant_ == Variant::kOut && !CastsOutput(functional_)) {
      TORCH_CHECK(result.scalar_type() == target.scalar_type(), "Expected out tensor to have dtype ",
                  result.dtype(), ", but got ", target.dtype(), " instead");
    }
    const bool casts = c10::canCast(result.scalar_type(), target.scalar_type());
    TORCH_CHECK_TYPE(casts || !IsOneOf(functional_, {"aten::cat"}),
                     "torch.cat(): input types can't be cast to the desired output type ",
                     target.scalar_type());
    TORCH_CHECK(casts || IsOneOf(functional_, {"aten::bernoulli"}), "result type ", result.scalar_type(),
                " can't be cast to the desired output type ", target.scalar_type());
  }

  void Store(const at::Tensor& result, const at::Tensor& target) const {
    if (variant_ == Variant::kOut) {
      // A target that is resized gets the result's memory format, as structured operators do it.
      if (at::native::resize_output(target, result.sizes()) && result.is_non_overlapping_and_dense())
        target.as_strided_(result.sizes(), result.strides());
    } else {
      TORCH_CHECK(target.sizes() == result.sizes(), "output with shape ", target.sizes(),
                  " doesn't match the broadcast shape ", result.sizes());
    }
    target.copy_(result);
  }

  OperatorHandle functional_;
  Variant variant_;
};

// ---- registration ----

void Register(const OperatorHandle& op, c10::KernelFunction kernel) {
  static auto* kept = new std::vector<c10::RegistrationHandleRAII>;
  kept->push_back(c10::Dispatcher::singleton().registerImpl(op.operator_name(), c10::DispatchKey::PrivateUse1,
                                                            std::move(kernel), std::nullopt, nullptr,
                                                            "xpud's op table"));
}

template <class Kernel>
void RegisterUnboxed(const ops::Row& row, const OperatorHandle& op) {
  Register(op, c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::make_unique<Kernel>(row, op)));
}

bool IsOurs(const OperatorHandle& op) { return op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1); }

// "TTS" for (Tensor, Tensor, Scalar); other types are '?'.
std::string Signature(const c10::FunctionSchema& schema) {
  std::string letters;
  for (const c10::Argument& argument : schema.arguments()) {
    const auto kind = argument.type()->kind();
    letters += kind == c10::TypeKind::TensorType ? 'T' : kind == c10::TypeKind::NumberType ? 'S' : '?';
  }
  return letters;
}

void RegisterMap(const ops::Row& row, const OperatorHandle& op, Variant variant) {
  const std::string signature = Signature(op.schema());
  const bool in_place = variant == Variant::kInPlace;
  if (variant != Variant::kOut && signature == "T") {
    return in_place ? RegisterUnboxed<UnaryInPlace>(row, op) : RegisterUnboxed<Unary>(row, op);
  }
  if (variant != Variant::kOut && signature == "TT") {
    return in_place ? RegisterUnboxed<BinaryInPlace>(row, op) : RegisterUnboxed<Binary>(row, op);
  }
  if (variant != Variant::kOut && signature == "TTS" && op.schema().arguments()[2].kwarg_only()) {
    return in_place ? RegisterUnboxed<BinaryScaledInPlace>(row, op) : RegisterUnboxed<BinaryScaled>(row, op);
  }
  Register(op, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedMap>(row, variant)));
}

void RegisterRow(const ops::Row& row, const OperatorHandle& op, Variant variant) {
  if (IsOurs(op) || op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return;
  if (row.family == ops::Family::kMap && row.types != ops::TypeRule::kAny &&
      row.types != ops::TypeRule::kSame && row.outputs == 1) {
    RegisterMap(row, op, variant);
  } else if (row.family == ops::Family::kReduce && variant == Variant::kFunctional) {
    Register(op, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedReduce>(row)));
  } else if (variant == Variant::kFunctional && FitsSchema(row, op.schema())) {
    Register(op, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedOp>(row)));
  }
}

void RegisterCopyingVariants(const VariantIndex& index) {
  for (const OperatorHandle& op : index.functional()) {
    if (!IsOurs(op)) continue;
    for (const auto& [variant, other] : index.VariantsOf(op)) {
      if (IsOurs(other) || other.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
        continue;
      Register(other,
               c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<CopyingVariant>(op, variant)));
    }
  }
}

}  // namespace

void RegisterOpTable() {
  const VariantIndex index;
  for (const ops::Row& row : ops::kRows) {
    for (const std::string& name : OverloadsOf(row)) {
      const auto op = index.Find(name);
      if (!op.has_value() || IsOurs(*op)) continue;  // registered by hand; its variants follow below
      RegisterRow(row, *op, Variant::kFunctional);
      for (const auto& [variant, other] : index.VariantsOf(*op)) RegisterRow(row, other, variant);
    }
  }
  RegisterCopyingVariants(index);
  RegisterForeach(index);
}

void FallBackWithout(const ops::RowSet& known) {
  const VariantIndex index;
  for (const ops::Row& row : ops::kRows) {
    if (ops::Contains(known, row)) continue;
    for (const std::string& name : OverloadsOf(row)) {
      const auto op = index.Find(name);
      if (!op.has_value() || !IsOurs(*op)) continue;
      Register(*op, c10::KernelFunction::makeFromBoxedFunction<&Fallback>());
      for (const auto& [variant, other] : index.VariantsOf(*op))
        Register(other, c10::KernelFunction::makeFromBoxedFunction<&Fallback>());
    }
  }
}

}  // namespace xpud::shim
