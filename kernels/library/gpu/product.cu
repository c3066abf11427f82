// The product of any layout, and kernels around a library's product: copies to a layout that it supports, and
// epilogues that it lacks. Compiled to PTX.
#include <stdbool.h>

#include "kernels/library/gpu/device.h"
#include "kernels/library/gpu/product_arguments.h"

#pragma clang force_cuda_host_device begin
namespace {
#include "kernels/compiler/math.c"
}
#pragma clang force_cuda_host_device end

namespace xpud::gpu {

XPUD_DEVICE float Erf(float x) { return xpud_erf_f32(x); }
XPUD_DEVICE double Erf(double x) { return xpud_erf_f64(x); }
XPUD_DEVICE float Tanh(float x) { return xpud_tanh_f32(x); }
XPUD_DEVICE double Tanh(double x) { return xpud_tanh_f64(x); }

// Not inlined at each element of a lane, because the driver compiles this code when it loads the module.
template <typename W>
__attribute__((device, noinline)) W Gelu(W x, bool by_tanh) {
  if (by_tanh) return W(0.5) * x * (W(1) + Tanh(W(0.79788456080286535588) * (x + W(0.044715) * x * x * x)));
  return W(0.5) * x * (W(1) + Erf(x * W(0.70710678118654752440)));
}

// The numbers are those of ops::Activation.
template <typename W>
XPUD_DEVICE W Activate(W x, int64_t activation) {
  if (activation == 0) return x;
  if (activation == 1) return x < 0 ? W(0) : x;  // NaN stays NaN
  return Gelu(x, activation == 3);
}

template <typename T, typename Arguments, typename W>
XPUD_DEVICE void Finish(const Arguments& p, int64_t batch, int64_t row, int64_t column, W sum) {
  W x = static_cast<W>(p.alpha) * sum;
  if (p.c != nullptr) {
    const T* const c = static_cast<const T*>(p.c);
    x += static_cast<W>(p.beta) *
         Load(c[batch * p.c_strides.batch + row * p.c_strides.row + column * p.c_strides.column]);
  }
  T* const out = static_cast<T*>(p.out);
  Store(out[batch * p.out_strides.batch + row * p.out_strides.row + column * p.out_strides.column],
        Activate(x, p.activation));
}

constexpr int kTile = ProductArguments::kTile;
constexpr int kDepth = 16;

// Loads a panel of kTile x kDepth, with its depth outermost; elements outside the matrix are 0. Adjacent
// lanes read adjacent elements along the contiguous axis.
template <typename T, typename W>
XPUD_DEVICE void LoadPanel(W (*panel)[kTile + 4], const T* from, int64_t stride, int64_t depth_stride,
                           int64_t size, int64_t depth) {
  for (int i = Lane(); i < kTile * kDepth; i += ProductArguments::kLanes) {
    const int at = depth_stride == 1 ? i / kDepth : i % kTile, d = depth_stride == 1 ? i % kDepth : i / kTile;
    panel[d][at] = at < size && d < depth ? Load(from[at * stride + d * depth_stride]) : W(0);
  }
}

template <typename T>
XPUD_DEVICE void Multiply(const ProductArguments& p) {
  using W = typename Wide<T>::type;
  XPUD_SHARED W a_panel[kDepth][kTile + 4];
  XPUD_SHARED W b_panel[kDepth][kTile + 4];
  const int64_t columns = (p.n + kTile - 1) / kTile;
  const int64_t row = GroupX() / columns * kTile, column = GroupX() % columns * kTile;
  const int lane_row = Lane() / 16 * 4, lane_column = Lane() % 16;
  for (int64_t batch = GroupY(); batch < p.batch; batch += GroupsY()) {
    const T* const a = static_cast<const T*>(p.a) + batch * p.a_strides.batch + row * p.a_strides.row;
    const T* const b = static_cast<const T*>(p.b) + batch * p.b_strides.batch + column * p.b_strides.column;
    W sum[4][4] = {};
    for (int64_t k = 0; k < p.k; k += kDepth) {
      LoadPanel(a_panel, a + k * p.a_strides.column, p.a_strides.row, p.a_strides.column, p.m - row, p.k - k);
      LoadPanel(b_panel, b + k * p.b_strides.row, p.b_strides.column, p.b_strides.row, p.n - column, p.k - k);
      Synchronize();
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            sum[i][j] = __builtin_elementwise_fma(a_panel[d][lane_row + i], b_panel[d][lane_column + 16 * j],
                                                  sum[i][j]);
      }
      Synchronize();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (row + lane_row + i < p.m && column + lane_column + 16 * j < p.n)
          Finish<T>(p, batch, row + lane_row + i, column + lane_column + 16 * j, sum[i][j]);
  }
}

template <typename T>
XPUD_DEVICE void FinishAll(const FinishArguments& p) {
  using W = typename Wide<T>::type;
  const int64_t size = p.m * p.n;
  for (int64_t batch = GroupY(); batch < p.batch; batch += GroupsY())
    for (int64_t i = GroupX() * FinishArguments::kLanes + Lane(); i < size;
         i += GroupsX() * FinishArguments::kLanes)
      Finish<T>(p, batch, i / p.n, i % p.n, static_cast<const W*>(p.sum)[batch * size + i]);
}

template <typename T>
XPUD_DEVICE void Copy(const CopyArguments& p) {
  const int64_t size = p.rows * p.columns;
  for (int64_t batch = GroupY(); batch < p.batch; batch += GroupsY())
    for (int64_t i = GroupX() * CopyArguments::kLanes + Lane(); i < size;
         i += GroupsX() * CopyArguments::kLanes)
      static_cast<T*>(p.target)[batch * size + i] =
          static_cast<const T*>(p.source)[batch * p.strides.batch + i / p.columns * p.strides.row +
                                          i % p.columns * p.strides.column];
}

}  // namespace xpud::gpu

using namespace xpud::gpu;

#define XPUD_PRODUCT(name, type)                                                   \
  XPUD_KERNEL(256) product_##name(const ProductArguments p) { Multiply<type>(p); } \
  XPUD_KERNEL(256) finish_##name(const FinishArguments p) { FinishAll<type>(p); }
XPUD_PRODUCT(float32, float)
XPUD_PRODUCT(float64, double)
XPUD_PRODUCT(bfloat16, BFloat16)
XPUD_PRODUCT(float16, Float16)
XPUD_KERNEL(256) copy_2(const CopyArguments p) { Copy<uint16_t>(p); }
XPUD_KERNEL(256) copy_4(const CopyArguments p) { Copy<uint32_t>(p); }
XPUD_KERNEL(256) copy_8(const CopyArguments p) { Copy<uint64_t>(p); }
