#include "sdk/torch/csrc/engines/map.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <array>
#include <vector>

#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using ops::DType;
using ops::TypeRule;

// Bool, integer, floating: the steps of type promotion among the wire's dtypes.
int Category(DType type) { return type == DType::kBool ? 0 : ops::IsFloating(type) ? 2 : 1; }

bool IsCpuScalar(const at::Tensor& tensor) { return tensor.dim() == 0 && tensor.device().is_cpu(); }

// Converts a scalar, or a CPU tensor without dimensions.
std::optional<TensorRef> Immediate(const MapInput& input) {
  if (input.tensor != nullptr && !IsCpuScalar(*input.tensor)) ThrowOtherDevice(*input.tensor);
  return input.tensor != nullptr ? ToImmediate(*input.tensor) : ToImmediate(input.scalar);
}

// Returns true if a scalar of dtype `scalar` does not change tensors of dtype `type`.
bool KeepsType(const MapInput& input, DType scalar, DType type, const at::Tensor& like) {
  if (Category(scalar) > Category(type)) return false;
  if (input.is_alpha && scalar == DType::kBool && type != DType::kBool) return false;  // refused later
  const bool wrapped = input.tensor == nullptr || input.tensor->unsafeGetTensorImpl()->is_wrapped_number();
  return wrapped || like.dim() > 0 || scalar == type;
}

// Returns the tensor that all others equal in shape, dtype and device; nullptr if there is none.
const at::Tensor* FlatTensor(std::span<const MapInput> inputs) {
  const at::Tensor* first = nullptr;
  for (const MapInput& input : inputs) {
    if (input.tensor == nullptr) continue;
    const at::Tensor& tensor = *input.tensor;
    if (!IsOnDevice(tensor)) {
      if (IsCpuScalar(tensor)) continue;
      return nullptr;
    }
    if (!tensor.is_contiguous()) return nullptr;
    if (first == nullptr) {
      first = &tensor;
    } else if (tensor.scalar_type() != first->scalar_type() || tensor.sizes() != first->sizes() ||
               tensor.device() != first->device()) {
      return nullptr;
    }
  }
  return first;
}

// Whether a number is an operand of ATen's iterator, which then finds the result's strides from those of the
// tensors, also where a dimension of one element leaves them open. An exponent or a bound is not.
bool HasNumber(const ops::Row& row, std::span<const MapInput> inputs) {
  const bool are_operands = !row.aten.starts_with("pow.") && !row.aten.starts_with("clamp");
  return std::ranges::any_of(inputs, [&](const MapInput& input) {
    return input.tensor != nullptr ? !IsOnDevice(*input.tensor) : input.promotes && are_operands;
  });
}

// Whether a contiguous tensor has the strides that a new one of its sizes would have.
bool HasPlainStrides(const at::Tensor& tensor) {
  int64_t step = 1;
  for (int64_t d = tensor.dim(); d-- > 0; step *= std::max<int64_t>(tensor.size(d), 1))
    if (tensor.stride(d) != step) return false;
  return true;
}

// Returns true if a flat map can write `out`: it has the same shape, and each input either is `out` itself or
// shares no memory with it.
bool IsFlatOutput(const at::Tensor& out, const at::Tensor& like, at::ScalarType type,
                  std::span<const MapInput> inputs) {
  if (out.scalar_type() != type || !IsOnDevice(out) || !out.is_contiguous() || out.sizes() != like.sizes() ||
      out.device() != like.device()) {
    return false;
  }
  for (const MapInput& input : inputs) {
    if (input.tensor == nullptr || !input.tensor->is_alias_of(out)) continue;
    if (input.tensor->storage_offset() != out.storage_offset() || input.tensor->scalar_type() != type)
      return false;
  }
  return true;
}

// Returns ATen's result type of all inputs, including scalars.
at::ScalarType PromotedType(const ops::Row& row, std::span<const MapInput> inputs) {
  at::native::ResultTypeState state{};
  for (const MapInput& input : inputs) {
    if (input.tensor != nullptr) {
      state = at::native::update_result_type_state(*input.tensor, state);
    } else if (input.promotes) {
      const at::Tensor number = at::native::wrapped_scalar_tensor(input.scalar);
      state = at::native::update_result_type_state(number, state);
    }
  }
  const at::ScalarType type = at::native::result_type(state);
  const bool becomes_floating = row.types == TypeRule::kFloat && c10::isIntegralType(type, true);
  return becomes_floating ? c10::typeMetaToScalarType(c10::get_default_dtype()) : type;
}

void CheckOutputType(const ops::Row& row, std::span<const MapInput> inputs, at::ScalarType computed,
                     at::ScalarType out) {
  const auto operands = std::count_if(inputs.begin(), inputs.end(),
                                      [](const MapInput& i) { return i.tensor != nullptr || i.promotes; });
  if (row.types == TypeRule::kBool) {
    const bool boolean = row.aten == "isposinf" || row.aten == "isneginf" || row.aten == "signbit";
    TORCH_CHECK(!boolean || out == at::kBool, std::string(row.aten),
                " does not support non-boolean outputs.");
    return;
  }
  if (row.types == TypeRule::kPromote && operands == 1) {
    TORCH_CHECK(out == computed, "Found dtype ", out, " but expected ", computed);
  } else {
    TORCH_CHECK(c10::canCast(computed, out), "result type ", computed,
                " can't be cast to the desired output type ", out);
  }
}

// Never destroyed: PyTorch may be gone by then.
const at::Tensor& AnyNumber() {
  static const at::Tensor& number = *new at::Tensor(at::scalar_tensor(0));
  return number;
}

// Applies ATen's rules for shape, strides and overlap. One number stands for all, since the iterator looks at
// their shape only.
void Shape(const ops::Row& row, std::span<const MapInput> inputs, at::ScalarType computed, at::Tensor& out) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).check_all_same_device(false).add_output(out);
  const at::Tensor* first = nullptr;
  for (const MapInput& input : inputs) {
    if (input.tensor == nullptr || !IsOnDevice(*input.tensor)) continue;
    if (first == nullptr) first = input.tensor;
    config.add_const_input(*input.tensor);
  }
  if (HasNumber(row, inputs)) config.add_const_input(AnyNumber());
  if (!out.defined())
    config.declare_static_dtype_and_device(row.types == TypeRule::kBool ? at::kBool : computed,
                                           first->device());
  const at::TensorIterator iterator = config.build();
  if (!out.defined()) out = iterator.output(0);
}

bool AreSupported(const ops::Row& row, std::span<const MapInput> inputs, const at::Tensor& out) {
  if (out.defined() && (!IsOnDevice(out) || !IsSupported(out.scalar_type()))) return false;
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](const MapInput& input) {
                       if (input.tensor == nullptr) return !input.scalar.isComplex();
                       return (IsOnDevice(*input.tensor) || IsCpuScalar(*input.tensor)) &&
                              IsSupported(input.tensor->scalar_type());
                     }) &&
         row.outputs == 1;
}

// Builds the descriptors and sends the command. Returns false if the rank is too high.
bool Send(const ops::Row& row, DType compute, std::span<const at::Tensor> outs,
          std::span<const MapInput> inputs);

// Computes on row-major copies, which have one dimension on the wire.
bool SendCopies(const ops::Row& row, DType compute, std::span<const at::Tensor> outs,
                std::span<const MapInput> inputs) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& out : outs)
    results.push_back(MakeEmpty(out.sizes(), out.scalar_type(), out.device()));
  std::array<at::Tensor, ops::kMaxInputs> copies;
  std::array<MapInput, ops::kMaxInputs> copied;
  for (size_t i = 0; i < inputs.size(); ++i) {
    copied[i] = inputs[i];
    const at::Tensor* const tensor = inputs[i].tensor;
    if (tensor == nullptr || !IsOnDevice(*tensor) || tensor->numel() == 1) continue;
    copies[i] = ContiguousAs(tensor->expand(outs[0].sizes()), tensor->scalar_type());
    copied[i].tensor = &copies[i];
  }
  if (!Send(row, compute, results, {copied.data(), inputs.size()})) return false;
  for (size_t i = 0; i < outs.size(); ++i) CopyOnDevice(results[i], outs[i]);
  return true;
}

bool Send(const ops::Row& row, DType compute, std::span<const at::Tensor> outs,
          std::span<const MapInput> inputs) {
  Broadcast broadcast(outs[0].sizes());
  for (const at::Tensor& out : outs) broadcast.Add(out);
  for (const MapInput& input : inputs) {
    if (input.tensor != nullptr && IsOnDevice(*input.tensor)) broadcast.Add(*input.tensor);
  }
  if (!broadcast.Finish()) return SendCopies(row, compute, outs, inputs);
  int operand = 0;
  std::array<TensorRef, ops::kMaxOutputs> out_refs;
  for (size_t i = 0; i < outs.size(); ++i)
    out_refs[i] = broadcast.Ref(operand++, outs[i], *ToDType(outs[i].scalar_type()));
  std::array<TensorRef, ops::kMaxInputs> in_refs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor* tensor = inputs[i].tensor;
    if (tensor != nullptr && IsOnDevice(*tensor)) {
      in_refs[i] = broadcast.Ref(operand++, *tensor, *ToDType(tensor->scalar_type()));
    } else {
      const auto immediate = Immediate(inputs[i]);
      if (!immediate.has_value()) return false;
      in_refs[i] = *immediate;
    }
  }
  OpCall call{.row = &row,
              .compute = compute,
              .outputs = {out_refs.data(), outs.size()},
              .inputs = {in_refs.data(), inputs.size()},
              .attributes = {}};
  Execute(call, DeviceIndexOf(outs[0]));
  return true;
}

void CheckAlpha(DType compute, std::span<const MapInput> inputs) {
  for (const MapInput& input : inputs) {
    if (!input.is_alpha) continue;
    TORCH_CHECK(!input.scalar.isBoolean() || compute == DType::kBool,
                "Boolean alpha only supported for Boolean results.");
    TORCH_CHECK(ops::IsFloating(compute) || input.scalar.isIntegral(true),
                "For integral input tensors, argument alpha must not be a floating point number.");
  }
}

void CheckDevices(std::span<const MapInput> inputs, const at::Tensor& out) {
  const at::Tensor* ours = nullptr;
  for (const MapInput& input : inputs) {
    if (input.tensor != nullptr && input.tensor->device().type() == kDeviceType) ours = input.tensor;
  }
  if (out.defined() && ours == nullptr) ours = &out;
  const auto check = [&](const at::Tensor& tensor) {
    if (ours != nullptr) CheckSameDevice(ours->device(), tensor.device());
  };
  for (const MapInput& input : inputs) {
    if (input.tensor != nullptr && !IsCpuScalar(*input.tensor)) check(*input.tensor);
  }
  if (out.defined()) check(out);
}

bool HasDeviceInput(std::span<const MapInput> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const MapInput& input) {
    return input.tensor != nullptr && IsOnDevice(*input.tensor);
  });
}

// Returns true if dtype `out` is wider than the common dtype; results are rounded to the common dtype first.
bool IsWider(at::ScalarType out, at::ScalarType common) { return at::promote_types(out, common) != common; }

void CheckSubtraction(const ops::Row& row, std::span<const MapInput> inputs) {
  const auto refused = [&](const MapInput& input) { return SubtractsBool(row, input); };
  const auto bools = std::ranges::count_if(inputs.first(std::min<size_t>(inputs.size(), 2)), refused);
  TORCH_CHECK(bools != 2,
              "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
              "`logical_xor()` operator instead.");
  TORCH_CHECK(
      bools == 0,
      "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert "
      "a mask, use the `~` or `logical_not()` operator instead.");
}

void CheckPower(const ops::Row& row, std::span<const MapInput> inputs) {
  static const ops::Row& pow = ops::RowOf("pow.Tensor_Scalar");
  if (&row != &pow || inputs[1].tensor != nullptr || !inputs[1].scalar.isIntegral(false)) return;
  const bool integral = c10::isIntegralType(inputs[0].tensor->scalar_type(), true);
  TORCH_CHECK(!integral || inputs[1].scalar.toLong() >= 0,
              "Integers to negative integer powers are not allowed.");
}

// Returns the row whose function PyTorch computes for this power: -0 to the power 0.5 is -0 there, -inf is
// nan.
const ops::Row* RootFor(const ops::Row& row, std::span<const MapInput> inputs) {
  static const ops::Row &pow = ops::RowOf("pow.Tensor_Scalar"), &sqrt = ops::RowOf("sqrt"),
                        &rsqrt = ops::RowOf("rsqrt");
  if (&row != &pow || inputs[1].tensor != nullptr || !inputs[1].scalar.isFloatingPoint()) return nullptr;
  const at::ScalarType type = inputs[0].tensor->scalar_type();
  if (type != at::kFloat && type != at::kDouble) return nullptr;
  const double exponent = inputs[1].scalar.toDouble();
  return exponent == 0.5 ? &sqrt : exponent == -0.5 ? &rsqrt : nullptr;
}

// The gradient is not computed from the result of a forward pass in place if its slope was negative.
void CheckSlope(const ops::Row& row, std::span<const MapInput> inputs) {
  static const ops::Row &elu = ops::RowOf("elu_backward"), &leaky = ops::RowOf("leaky_relu_backward");
  constexpr const char* kReason =
      " backward calculation is triggered with a negative slope which is not supported. This is caused by "
      "calling in-place forward function with a negative slope, please call out-of-place version instead.";
  TORCH_CHECK(&row != &elu || !inputs[4].scalar.toBool() || inputs[1].scalar.toDouble() >= 0, "In-place elu",
              kReason);
  TORCH_CHECK(&row != &leaky || !inputs[3].scalar.toBool() || inputs[2].scalar.toDouble() >= 0,
              "In-place leakyReLu", kReason,
              " File an issue at https://github.com/pytorch/pytorch if you do require supporting in-place "
              "leakRelu backward calculation with negative slope");
}

// lerp.Scalar is the only row that promotes its scalars but not its tensors.
void CheckLerp(const ops::Row& row, std::span<const MapInput> inputs) {
  static const ops::Row& lerp = ops::RowOf("lerp.Scalar");
  if (&row != &lerp) return;
  const at::Tensor& self = *inputs[0].tensor;
  for (const MapInput& input : inputs.subspan(1)) {
    TORCH_CHECK(input.tensor == nullptr || input.tensor->scalar_type() == self.scalar_type(),
                "expected dtype ", self.dtype(), " for `", &input == &inputs[1] ? "end" : "weight",
                "` but got dtype ", input.tensor->dtype());
  }
}

bool RunGeneralMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out) {
  CheckDevices(inputs, out);
  if (!AreSupported(row, inputs, out) || !HasDeviceInput(inputs)) return false;
  const at::ScalarType type = PromotedType(row, inputs);
  const auto compute = ToDType(type);
  if (!compute.has_value() || !ops::Contains(row.dtypes, *compute)) return false;
  CheckAlpha(*compute, inputs);
  CheckLerp(row, inputs);
  if (out.defined()) CheckOutputType(row, inputs, type, out.scalar_type());
  Shape(row, inputs, type, out);
  if (out.numel() == 0) return true;
  if (row.types == TypeRule::kBool || !IsWider(out.scalar_type(), type))
    return Send(row, *compute, {&out, 1}, inputs);
  const at::Tensor rounded = MakeEmpty(out.sizes(), type, out.device());
  if (!Send(row, *compute, {&rounded, 1}, inputs)) return false;
  out.copy_(rounded);
  return true;
}

}  // namespace

void CheckFits(const c10::Scalar& value, at::ScalarType type) {
  AT_DISPATCH_V2(type, "CheckFits", AT_WRAP([&] { value.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 AT_EXPAND(AT_FLOAT8_TYPES), at::kComplexHalf, at::kHalf, at::kBool, at::kBFloat16);
}

bool RunFlatMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out) {
  const at::Tensor* like = FlatTensor(inputs);
  if (like == nullptr) return false;
  const auto type = ToDType(like->scalar_type());
  if (!type.has_value() || !ops::Contains(row.dtypes, *type)) return false;
  if (row.types == TypeRule::kFloat && !ops::IsFloating(*type)) return false;
  const int64_t count = like->numel();
  std::array<TensorRef, ops::kMaxInputs> refs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const MapInput& input = inputs[i];
    if (input.tensor != nullptr && IsOnDevice(*input.tensor)) {
      refs[i] = DescribeAs(*input.tensor, {&count, 1});
      continue;
    }
    const auto immediate = Immediate(input);
    if (!immediate.has_value() || !KeepsType(input, immediate->dtype, *type, *like)) return false;
    refs[i] = *immediate;
  }
  const at::ScalarType out_type = row.types == TypeRule::kBool ? at::kBool : like->scalar_type();
  if (!out.defined()) {
    if (!HasPlainStrides(*like) && HasNumber(row, inputs)) return false;
    out = MakeEmpty(like->sizes(), out_type, like->device());
  } else if (!IsFlatOutput(out, *like, out_type, inputs)) {
    return false;
  }
  if (count == 0) return true;
  const TensorRef out_ref = DescribeAs(out, {&count, 1});
  Execute({.row = &row,
           .compute = *type,
           .outputs = {&out_ref, 1},
           .inputs = {refs.data(), inputs.size()},
           .attributes = {}},
          DeviceIndexOf(out));
  return true;
}

std::optional<TensorRef> ScalarInput(const MapInput& input, const at::Tensor& like) {
  const auto type = ToDType(like.scalar_type());
  if (!type.has_value()) return std::nullopt;
  if (input.tensor != nullptr && IsOnDevice(*input.tensor)) {
    const auto own = ToDType(input.tensor->scalar_type());
    if (!own.has_value() || !KeepsType(input, *own, *type, like)) return std::nullopt;
    return Bare(*input.tensor, *own);
  }
  const auto immediate = Immediate(input);
  return immediate.has_value() && KeepsType(input, immediate->dtype, *type, like) ? immediate : std::nullopt;
}

bool SubtractsBool(const ops::Row& row, const MapInput& input) {
  static const ops::Row &sub = ops::RowOf("sub.Tensor"), &rsub = ops::RowOf("rsub.Tensor");
  if (&row != &sub && &row != &rsub) return false;
  if (input.tensor != nullptr) return input.tensor->scalar_type() == at::kBool;
  return input.promotes && input.scalar.isBoolean();
}

bool RunMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out) {
  CheckSubtraction(row, inputs);
  CheckPower(row, inputs);
  CheckSlope(row, inputs);
  if (const ops::Row* const root = RootFor(row, inputs)) return RunMap(*root, inputs.first(1), out);
  return RunFlatMap(row, inputs, out) || RunGeneralMap(row, inputs, out);
}

void LaunchMap(const ops::Row& row, DType compute, std::span<const at::Tensor> outs,
               std::span<const MapInput> inputs) {
  if (outs[0].numel() == 0) return;
  TORCH_CHECK_NOT_IMPLEMENTED(Send(row, compute, outs, inputs), "XPUD: ", std::string(row.aten),
                              " on types that the device does not support");
}

}  // namespace xpud::shim
