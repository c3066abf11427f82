// Converts tensors and scalars to operands of the wire. A descriptor points to its tensor's sizes and
// strides, so the tensor must outlive it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <optional>
#include <span>

#include "sdk/torch/csrc/runtime/allocator.h"
#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {

using Sizes = std::array<int64_t, ops::kMaxRank>;

// Returns the wire's dtype, or nullopt if it has none (complex, quantised, unsigned beyond 8 bits, float8).
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

// Returns true for a strided tensor in device memory. Conjugation or negation may be pending.
inline bool IsOnDevice(const at::TensorBase& tensor) {
  return tensor.device().type() == kDeviceType && tensor.layout() == at::kStrided;
}

inline int DeviceIndexOf(const at::TensorBase& tensor) { return tensor.device().index(); }

// Throws RuntimeError, in ATen's words.
[[noreturn]] void ThrowOtherDevice(c10::Device first, c10::Device second);
[[noreturn]] void ThrowOtherDevice(const at::TensorBase& tensor);
inline void CheckSameDevice(c10::Device first, c10::Device second) {
  if (first != second) [[unlikely]]
    ThrowOtherDevice(first, second);
}

// Throws for a tensor on another device: the daemon does not know its address, and would report it only at a
// later operator.
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

// Describes the tensor as it is. Throws if its rank exceeds ops::kMaxRank or the wire lacks its dtype.
TensorRef Describe(const at::TensorBase& tensor);

// Describes a contiguous tensor as row-major `sizes`, which must outlive the descriptor.
inline TensorRef DescribeAs(const at::TensorBase& tensor, std::span<const int64_t> sizes) {
  TensorRef ref = Bare(tensor, *ToDType(tensor.scalar_type()));
  ref.rank = static_cast<uint8_t>(sizes.size());
  ref.sizes = sizes.data();
  return ref;
}

// Returns nullopt for complex numbers.
std::optional<TensorRef> ToImmediate(const c10::Scalar& scalar);
// Returns the value of a CPU tensor of one element; nullopt if the wire lacks its dtype.
std::optional<TensorRef> ToImmediate(const at::TensorBase& cpu_scalar);

// Describes an optional input.
inline TensorRef DescribeIf(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? Describe(*tensor) : TensorRef{};
}

// Operands of one shape. Adjacent dimensions are merged if the strides of every operand allow it.
class Broadcast {
 public:
  static constexpr int kMaxOperands = ops::kMaxInputs + ops::kMaxOutputs;
  explicit Broadcast(c10::IntArrayRef shape) : shape_(shape.begin(), shape.end()) {}
  // Adds `tensor`, expanded to the shape (stride 0 where its size is 1).
  void Add(const at::TensorBase& tensor);
  // Returns false if more than ops::kMaxRank dimensions remain.
  bool Finish();
  TensorRef Ref(int operand, const at::TensorBase& tensor, ops::DType dtype) const;

 private:
  void Merge();
  c10::SmallVector<int64_t, ops::kMaxRank> shape_;
  c10::SmallVector<c10::SmallVector<int64_t, ops::kMaxRank>, 4> strides_;
};

}  // namespace xpud::shim
