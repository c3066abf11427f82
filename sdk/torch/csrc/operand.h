// Tensors and scalars as the wire's operands. A descriptor points into its tensor's sizes and strides: the
// tensor outlives it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <optional>
#include <span>

#include "sdk/torch/csrc/allocator.h"
#include "sdk/torch/csrc/runtime.h"

namespace xpud::shim {

using Sizes = std::array<int64_t, ops::kMaxRank>;

// The wire's type; nothing for those that it lacks (complex, quantised, unsigned beyond 8 bits, float8).
constexpr std::optional<ops::DType> ToDType(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return ops::DType::kBool;
    case at::kByte:
      return ops::DType::kUInt8;
    case at::kChar:
      return ops::DType::kInt8;
    case at::kShort:
      return ops::DType::kInt16;
    case at::kInt:
      return ops::DType::kInt32;
    case at::kLong:
      return ops::DType::kInt64;
    case at::kHalf:
      return ops::DType::kFloat16;
    case at::kBFloat16:
      return ops::DType::kBFloat16;
    case at::kFloat:
      return ops::DType::kFloat32;
    case at::kDouble:
      return ops::DType::kFloat64;
    default:
      return std::nullopt;
  }
}

inline bool IsSupported(at::ScalarType type, ops::DTypeSet types = ops::kAllTypes) {
  const auto dtype = ToDType(type);
  return dtype.has_value() && ops::Contains(types, *dtype);
}

// A strided tensor in our memory, without pending conjugation or negation.
inline bool IsOnDevice(const at::TensorBase& tensor) {
  return tensor.device().type() == kDeviceType && tensor.layout() == at::kStrided;
}

inline int DeviceIndexOf(const at::TensorBase& tensor) { return tensor.device().index(); }

// RuntimeError, in ATen's words.
[[noreturn]] void ThrowOtherDevice(c10::Device first, c10::Device second);
[[noreturn]] void ThrowOtherDevice(const at::TensorBase& tensor);
inline void CheckSameDevice(c10::Device first, c10::Device second) {
  if (first != second) [[unlikely]]
    ThrowOtherDevice(first, second);
}

// Refuses a tensor elsewhere: the daemon would not know its address, and say so at a later operator only.
inline TensorRef Bare(const at::TensorBase& tensor, ops::DType dtype) {
  if (tensor.device().type() != kDeviceType) [[unlikely]]
    ThrowOtherDevice(tensor);
  TensorRef ref;
  ref.kind = TensorRef::Kind::kTensor;
  ref.dtype = dtype;
  const Place place = PlaceOf(tensor);
  ref.buffer = place.buffer;
  ref.offset = place.offset;
  return ref;
}

// The tensor as it is; rank <= ops::kMaxRank and a type of the wire, or it throws.
TensorRef Describe(const at::TensorBase& tensor);

// A tensor without gaps as `sizes`, row-major. `sizes` outlives the descriptor.
inline TensorRef DescribeAs(const at::TensorBase& tensor, std::span<const int64_t> sizes) {
  TensorRef ref = Bare(tensor, *ToDType(tensor.scalar_type()));
  ref.rank = static_cast<uint8_t>(sizes.size());
  ref.sizes = sizes.data();
  return ref;
}

// Nothing for complex numbers.
std::optional<TensorRef> ToImmediate(const c10::Scalar& scalar);
// The value of a CPU tensor of one element; nothing for types that the wire lacks.
std::optional<TensorRef> ToImmediate(const at::TensorBase& cpu_scalar);

// An optional input.
inline TensorRef DescribeIf(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? Describe(*tensor) : TensorRef{};
}

// Operands of one shape, with dimensions merged where every operand allows it.
class Broadcast {
 public:
  static constexpr int kMaxOperands = ops::kMaxInputs + ops::kMaxOutputs;
  explicit Broadcast(c10::IntArrayRef shape) : shape_(shape.begin(), shape.end()) {}
  // Adds `tensor` expanded to the shape (strides 0 where it has size 1).
  void Add(const at::TensorBase& tensor);
  // False when more than ops::kMaxRank dimensions remain.
  bool Finish();
  TensorRef Ref(int operand, const at::TensorBase& tensor, ops::DType dtype) const;

 private:
  void Merge();
  c10::SmallVector<int64_t, ops::kMaxRank> shape_;
  c10::SmallVector<c10::SmallVector<int64_t, ops::kMaxRank>, 4> strides_;
};

}  // namespace xpud::shim
