#include "sdk/torch/csrc/map.h"

#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

#include "sdk/torch/csrc/factories.h"

namespace xpud::shim {
namespace {

using ops::DType;
using ops::TypeRule;

// Bool, integer, floating: the steps of type promotion among types that the wire has.
int Category(DType type) { return type == DType::kBool ? 0 : ops::IsFloating(type) ? 2 : 1; }

bool IsCpuScalar(const at::Tensor& tensor) { return tensor.dim() == 0 && tensor.device().is_cpu(); }

std::optional<TensorRef> Immediate(const MapInput& input) {
  return input.tensor != nullptr ? ToImmediate(*input.tensor) : ToImmediate(input.scalar);
}

// Whether a scalar of type `scalar` leaves tensors of type `type` as they are.
bool KeepsType(const MapInput& input, DType scalar, DType type, const at::Tensor& like) {
  if (Category(scalar) > Category(type)) return false;
  const bool wrapped = input.tensor == nullptr || input.tensor->unsafeGetTensorImpl()->is_wrapped_number();
  return wrapped || like.dim() > 0 || scalar == type;
}

// The tensor that all others must be like, or nullptr.
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

// A given output of a flat map: of the same shape, and either the very input or of other memory.
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

at::TensorIteratorConfig ConfigOf(const ops::Row& row, size_t tensors, const at::Tensor& out) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(true).allow_cpu_scalars(true);
  if (row.types == TypeRule::kBool) {
    config.promote_inputs_to_common_dtype(true);
    if (!out.defined()) config.declare_static_dtype(at::kBool);
    if (out.defined() && out.scalar_type() != at::kBool) config.cast_common_dtype_to_outputs(true);
  } else if (row.types == TypeRule::kPromote && tensors == 1) {
    config.check_all_same_dtype(true);
  } else {
    config.promote_inputs_to_common_dtype(true)
        .cast_common_dtype_to_outputs(true)
        .enforce_safe_casting_to_output(true);
    config.promote_integer_inputs_to_float(row.types == TypeRule::kFloat);
  }
  return config;
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

// Builds the descriptors and sends. False when the ranks are too many.
bool Send(const ops::Row& row, DType compute, std::span<const at::Tensor> outs,
          std::span<const MapInput> inputs) {
  Broadcast broadcast(outs[0].sizes());
  for (const at::Tensor& out : outs) broadcast.Add(out);
  for (const MapInput& input : inputs) {
    if (input.tensor != nullptr && IsOnDevice(*input.tensor)) broadcast.Add(*input.tensor);
  }
  if (!broadcast.Finish()) return false;
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

// `alpha` and its like must fit the type that the others promote to.
void CheckScalars(DType compute, std::span<const MapInput> inputs) {
  for (const MapInput& input : inputs) {
    if (input.tensor != nullptr || input.promotes) continue;
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
    TORCH_CHECK(ours == nullptr || tensor.device() == ours->device(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                ours->device(), " and ", tensor.device(), "!");
  };
  for (const MapInput& input : inputs) {
    if (input.tensor != nullptr && !IsCpuScalar(*input.tensor)) check(*input.tensor);
  }
  if (out.defined()) check(out);
}

bool RunGeneralMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out) {
  CheckDevices(inputs, out);
  if (!AreSupported(row, inputs, out)) return false;
  std::array<at::Tensor, ops::kMaxInputs> wrapped;  // scalars that promote, as ATen's wrapped numbers
  const auto tensors = std::count_if(inputs.begin(), inputs.end(),
                                     [](const MapInput& i) { return i.tensor != nullptr || i.promotes; });
  at::TensorIteratorConfig config = ConfigOf(row, tensors, out);
  config.add_output(out);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].tensor != nullptr) {
      config.add_const_input(*inputs[i].tensor);
    } else if (inputs[i].promotes) {
      wrapped[i] = c10::scalar_to_tensor(inputs[i].scalar);
      wrapped[i].unsafeGetTensorImpl()->set_wrapped_number(true);
      config.add_const_input(wrapped[i]);
    }
  }
  at::TensorIterator iterator = config.build();
  if (!out.defined()) out = iterator.output(0);
  const auto compute =
      ToDType(tensors == 1 && row.types == TypeRule::kPromote ? iterator.dtype(1) : iterator.common_dtype());
  if (!compute.has_value() || !ops::Contains(row.dtypes, *compute)) return false;
  CheckScalars(*compute, inputs);
  if (out.numel() == 0) return true;
  return Send(row, *compute, {&out, 1}, inputs);
}

}  // namespace

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

bool RunMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out) {
  return RunFlatMap(row, inputs, out) || RunGeneralMap(row, inputs, out);
}

void LaunchMap(const ops::Row& row, DType compute, std::span<const at::Tensor> outs,
               std::span<const MapInput> inputs) {
  if (outs[0].numel() == 0) return;
  TORCH_CHECK_NOT_IMPLEMENTED(Send(row, compute, outs, inputs), "XPUD: ", std::string(row.aten),
                              " on more than ", ops::kMaxRank,
                              " dimensions, or on types that the device lacks");
}

}  // namespace xpud::shim
