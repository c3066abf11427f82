#include "sdk/torch/csrc/call/operand.h"

#include <ATen/Dispatch_v2.h>

namespace xpud::shim {

void ThrowOtherDevice(c10::Device first, c10::Device second) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", first,
              " and ", second, "!");
}

void ThrowOtherDevice(const at::TensorBase& tensor) {
  ThrowOtherDevice(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(Runtime::CurrentDevice())),
                   tensor.device());
}

TensorRef Describe(const at::TensorBase& tensor) {
  const auto dtype = ToDType(tensor.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(dtype.has_value(), "XPUD has no kernels for ", tensor.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.dim() <= ops::kMaxRank, "XPUD: tensors of more than ", ops::kMaxRank,
                              " dimensions");
  TensorRef ref = Bare(tensor, *dtype);
  ref.rank = static_cast<uint8_t>(tensor.dim());
  ref.sizes = tensor.sizes().data();
  ref.strides = tensor.strides().data();
  return ref;
}

std::optional<TensorRef> ToImmediate(const c10::Scalar& scalar) {
  if (scalar.isFloatingPoint()) return TensorRef::Immediate(scalar.toDouble());
  if (scalar.isBoolean())
    return TensorRef::FromNumber(ops::Number::Integer(scalar.toBool()), ops::DType::kBool);
  if (scalar.isIntegral(false)) return TensorRef::Immediate(scalar.toLong());
  return std::nullopt;
}

std::optional<TensorRef> ToImmediate(const at::TensorBase& tensor) {
  const auto dtype = ToDType(tensor.scalar_type());
  if (!dtype.has_value() || tensor.is_neg()) return std::nullopt;
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return TensorRef::FromNumber(ops::Number::Real(*static_cast<const double*>(data)), *dtype);
    case at::kFloat:
      return TensorRef::FromNumber(ops::Number::Real(*static_cast<const float*>(data)), *dtype);
    case at::kHalf:
      return TensorRef::FromNumber(ops::Number::Real(*static_cast<const c10::Half*>(data)), *dtype);
    case at::kBFloat16:
      return TensorRef::FromNumber(ops::Number::Real(*static_cast<const c10::BFloat16*>(data)), *dtype);
    case at::kLong:
      return TensorRef::FromNumber(ops::Number::Integer(*static_cast<const int64_t*>(data)), *dtype);
    case at::kInt:
      return TensorRef::FromNumber(ops::Number::Integer(*static_cast<const int32_t*>(data)), *dtype);
    case at::kShort:
      return TensorRef::FromNumber(ops::Number::Integer(*static_cast<const int16_t*>(data)), *dtype);
    case at::kChar:
      return TensorRef::FromNumber(ops::Number::Integer(*static_cast<const int8_t*>(data)), *dtype);
    case at::kByte:
      return TensorRef::FromNumber(ops::Number::Integer(*static_cast<const uint8_t*>(data)), *dtype);
    case at::kBool:
      return TensorRef::FromNumber(ops::Number::Integer(*static_cast<const bool*>(data)), *dtype);
    default:
      return std::nullopt;
  }
}

void Broadcast::Add(const at::TensorBase& tensor) {
  c10::SmallVector<int64_t, ops::kMaxRank>& strides = strides_.emplace_back(shape_.size(), 0);
  const size_t missing = shape_.size() - tensor.dim();
  for (size_t d = missing; d < shape_.size(); ++d) {
    const auto own = static_cast<int64_t>(d - missing);
    strides[d] = tensor.size(own) == 1 ? 0 : tensor.stride(own);
  }
}

bool Broadcast::Finish() {
  if (shape_.size() > ops::kMaxRank) Merge();
  return shape_.size() <= ops::kMaxRank;
}

void Broadcast::Merge() {
  const auto mergeable = [&](size_t outer, size_t inner) {
    for (const auto& strides : strides_) {
      if (strides[outer] != strides[inner] * shape_[inner]) return false;
    }
    return true;
  };
  size_t last = 0;  // dimensions [0, last] are final
  for (size_t d = 1; d < shape_.size(); ++d) {
    if (shape_[d] == 1) continue;
    if (shape_[last] == 1) {
      shape_[last] = shape_[d];
      for (auto& strides : strides_) strides[last] = strides[d];
    } else if (mergeable(last, d)) {
      shape_[last] *= shape_[d];
      for (auto& strides : strides_) strides[last] = strides[d];
    } else {
      shape_[++last] = shape_[d];
      for (auto& strides : strides_) strides[last] = strides[d];
    }
  }
  shape_.resize(last + 1);
  for (auto& strides : strides_) strides.resize(last + 1);
}

TensorRef Broadcast::Ref(int operand, const at::TensorBase& tensor, ops::DType dtype) const {
  TensorRef ref = Bare(tensor, dtype);
  ref.rank = static_cast<uint8_t>(shape_.size());
  ref.sizes = shape_.data();
  ref.strides = strides_[operand].data();
  return ref;
}

}  // namespace xpud::shim
