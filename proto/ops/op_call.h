// The operands of a call: descriptors of tensors, immediates and attributes. Plain values; nothing here owns
// memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "proto/ops/op_table.h"

namespace xpud {

// Identifies device memory of a session. Ids are dense and are reused with a larger generation. Generation 0
// is null.
struct BufferHandle {
  uint32_t id = 0;
  uint32_t generation = 0;
  bool operator==(const BufferHandle&) const = default;
};

// A view of a buffer, an immediate number, or nothing (an absent optional input).
struct TensorRef {
  enum class Kind : uint8_t { kAbsent, kTensor, kImmediate };
  Kind kind = Kind::kAbsent;
  ops::DType dtype = ops::DType::kFloat32;
  uint8_t rank = 0;  // <= ops::kMaxRank
  BufferHandle buffer;
  uint64_t offset = 0;               // bytes from the buffer's start; a multiple of the element size
  const int64_t* sizes = nullptr;    // `rank` of them, outermost first
  const int64_t* strides = nullptr;  // in elements, >= 0; nullptr: row-major, no gaps
  ops::Number number;                // kImmediate

  static TensorRef Immediate(double v) { return FromNumber(ops::Number::Real(v), ops::DType::kFloat64); }
  static TensorRef Immediate(int64_t v) { return FromNumber(ops::Number::Integer(v), ops::DType::kInt64); }
  static TensorRef FromNumber(ops::Number number, ops::DType dtype) {
    TensorRef ref;
    ref.kind = Kind::kImmediate;
    ref.number = number;
    ref.dtype = dtype;
    return ref;
  }
};

// One op: a row of the op table with its operands. `compute` is the promoted type (maps and reductions).
struct OpCall {
  const ops::Row* row = nullptr;
  ops::DType compute = ops::DType::kFloat32;
  std::span<const TensorRef> outputs;
  std::span<const TensorRef> inputs;  // at most row->inputs, except with tensor lists
  // In the order of the family's schema; missing ones have their defaults. A list is its length followed by
  // its elements.
  std::span<const ops::Number> attributes;
  std::span<const uint16_t> lists = {};  // lengths of the tensor lists, outputs' lists first
};

}  // namespace xpud
