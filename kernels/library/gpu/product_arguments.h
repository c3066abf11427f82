// The arguments of the kernels of product.cu, passed by value. Shared by host and device code.
#pragma once

#include <stdint.h>

namespace xpud::gpu {

// Strides in elements of a stack of matrices.
struct StackStrides {
  int64_t batch, row, column;
};

// out = activation(alpha * a b + beta * c). Kernels product_<type>: a group of 256 lanes computes a tile of
// 64x64; groups x: tiles, those of a row of tiles adjacent; y: of the batch, in turn.
struct ProductArguments {
  static constexpr int kTile = 64;
  static constexpr int kLanes = 256;

  const void* a;
  const void* b;
  const void* c;  // or nullptr
  void* out;
  StackStrides a_strides, b_strides, c_strides, out_strides;
  int64_t batch, m, n, k;
  double alpha, beta;
  int64_t activation;  // ops::Activation
};

// out = activation(alpha * sum + beta * c); sum in f32 (f64 for f64) without gaps. Kernels finish_<type> of
// 256 lanes, one element for each lane; groups x: of m * n elements, y: of the batch, in turn.
struct FinishArguments {
  static constexpr int kLanes = 256;

  const void* sum;
  const void* c;  // or nullptr
  void* out;
  StackStrides c_strides, out_strides;
  int64_t batch, m, n;
  double alpha, beta;
  int64_t activation;
};

// target[batch, rows, columns], without gaps = source. Kernels copy_<bytes of an element> of 256 lanes;
// groups as above.
struct CopyArguments {
  static constexpr int kLanes = 256;

  const void* source;
  void* target;
  StackStrides strides;
  int64_t batch, rows, columns;
};

}  // namespace xpud::gpu
