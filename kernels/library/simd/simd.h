// Vector code that is compiled once for each instruction set (x86-64-v4, -v3, and the baseline; attention of
// bf16 also for v4 with AMX or AVX512-BF16) and chosen at run time: a blocked matrix product, the epilogue of
// a product, strided copies, panels, and depthwise convolutions. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/library/simd/attention_tile.h"
#include "proto/ops/op_table.h"

namespace xpud::kernels::simd {

// A strided matrix of `dtype`; strides in elements, >= 0.
struct MatrixView {
  const void* data = nullptr;
  ops::DType dtype = ops::DType::kFloat32;
  int64_t row = 0;
  int64_t column = 0;
};

// acc[m,n] = a[m,k] b[k,n], accumulated over k in order in the accumulate type: f64 if `wide`, else f32. An
// element does not depend on the tile in which it is computed. m <= kMaxRows, n <= kMaxColumns.
struct Product {
  static constexpr int64_t kMaxRows = 96;
  static constexpr int64_t kMaxColumns = 256;
  static constexpr size_t kScratchBytes = size_t{1} << 20;

  bool wide = false;
  int64_t m = 0, n = 0, k = 0;
  MatrixView a, b;
  void* acc = nullptr;                              // kAccBytes; 64-byte aligned
  void* scratch = nullptr;                          // kScratchBytes; 64-byte aligned
  static constexpr int64_t kLeading = kMaxColumns;  // row stride of acc, in elements
  static constexpr size_t kAccBytes = size_t{kMaxRows} * kLeading * 8;
};

// acc[m,n] = a[m,k] b[k,n] in f32 for a few rows. REQUIRES: b.row is 1. An element does not depend on the
// tile in which it is computed.
struct Dots {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;  // rows padded with zeros to a multiple of 16
  int64_t a_row = 0;
  MatrixView b;  // f32, bf16 or f16
  float* acc = nullptr;
  int64_t leading = 0;  // row stride of acc, in elements
};

// out[m,n] = activation(alpha * acc + beta * c). c may be out. Computed in the accumulate type. Without acc,
// which c, alpha and beta need: out = activation(out), of contiguous rows.
struct Epilogue {
  bool wide = false;
  int64_t m = 0, n = 0;
  const void* acc = nullptr;
  int64_t leading = 0;  // row stride of acc, in elements
  double alpha = 1, beta = 0;
  MatrixView c;  // data == nullptr: none
  ops::Activation activation = ops::Activation::kNone;
  void* out = nullptr;
  ops::DType out_dtype = ops::DType::kFloat32;
  int64_t out_row = 0, out_column = 0;
};

// target (row-major, no gaps) = source[rows, columns], converted. Same type, or any float type to f32.
struct Gather {
  MatrixView source;
  int64_t rows = 0, columns = 0;
  void* target = nullptr;
  ops::DType target_dtype = ops::DType::kFloat32;
};

// Brings a block of a matrix into a panel of `width` columns: unit[row][column], where a unit is an element
// of 4 bytes, or two elements of 2 bytes of consecutive rows, the first in the lower half. What the source
// lacks is zero.
struct Panel {
  MatrixView source;              // of a type of 4 or 2 bytes; fast if a stride is 1
  int64_t rows = 0, columns = 0;  // of the source
  int64_t target_rows = 0;        // elements
  int64_t width = 0;
  void* target = nullptr;
};

// Rows of one plane of a depthwise convolution, in f32: out[y][x] = bias + sum over t of weights[t] times the
// input at the place of tap t. Planes are without gaps; outside of its plane the input is 0.
struct PlaneRows {
  // Elements that a phase must have beyond its positions, for vectors that reach beyond the last output.
  static constexpr int64_t kSlack = 16;

  ops::DType dtype = ops::DType::kFloat32;  // of in and out: f32, bf16 or f16
  const void* in = nullptr;
  int64_t in_size[2] = {}, stride[2] = {}, padding[2] = {};
  void* out = nullptr;
  int64_t out_columns = 0;
  int64_t first_row = 0, rows = 0;  // of out, computed by this call
  bool clears = true;  // unless the last call with this scratch was for the same rows of another plane
  float bias = 0;
  int64_t taps = 0, reach = 0;  // elements of the kernel, and rows of the input that an output row spans
  const float* weights = nullptr;
  // In scratch, a row of the input has stride[1] phases of phase_floats: phase p has its phase_positions
  // positions p, p + stride[1], .. from the padding's first on. offsets[t]: of tap t from an output's first
  // row and column.
  int64_t phase_positions = 0, phase_floats = 0;
  const int64_t* offsets = nullptr;
  float* scratch = nullptr;  // ((rows - 1) * stride[0] + reach) * stride[1] * phase_floats
};

struct AttentionFunctions {
  void (*attend)(const AttentionTile& tile);
  size_t (*scratch)(const AttentionTile& tile);  // bytes of scratch that `attend` needs
  void (*attend_backward)(const AttentionGradientTile& tile);
  size_t (*backward_scratch)(const AttentionGradientTile& tile);
  void (*sum_gradient)(const AttentionGradientSum& sum);
  bool in_pairs;  // multiplies bf16, so weights and slopes are rounded to it
};

struct Functions {
  const char* isa;
  void (*multiply)(const Product& product);
  void (*dot)(const Dots& dots);
  void (*finish)(const Epilogue& epilogue);
  void (*gather)(const Gather& gather);
  void (*pack)(const Panel& panel);
  void (*convolve)(const PlaneRows& rows);
  AttentionFunctions attention, attention_bf16;

  const AttentionFunctions& AttentionOf(ops::DType dtype) const {
    return dtype == ops::DType::kBFloat16 ? attention_bf16 : attention;
  }
};

// Returns the best functions for this machine; chosen once.
const Functions& Best();
// Makes Best return other functions, or again the best if nullptr. REQUIRES: no other thread calls Best.
void UseInTests(const Functions* functions);
// Returns all functions that this machine can run, best first, for tests that compare them. Sets `count` to
// their number.
const Functions* const* Supported(int* count);

// Attention of bf16 by instructions for it; the rest is as in v4.
namespace amx {
extern const AttentionFunctions kAttention;
}
namespace v4_bf16 {
extern const AttentionFunctions kAttention;
}
namespace v4 {
extern const Functions kFunctions;
}
namespace v3 {
extern const Functions kFunctions;
}
namespace baseline {
extern const Functions kFunctions;
}

}  // namespace xpud::kernels::simd
