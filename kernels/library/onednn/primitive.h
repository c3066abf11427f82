// A oneDNN matmul primitive and the thread state that running one needs. oneDNN's exceptions end here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/library/matmul/matmul_problem.h"

namespace xpud::kernels::onednn {

using matmul::IsMatrix;
using matmul::MatmulCall;
using matmul::MatmulOperands;
using matmul::MatmulProblem;
using matmul::ReadMatmul;
using matmul::Strides;

// The CPU engine of the process.
const dnnl::engine& CpuEngine();
// This thread's stream; the first call makes oneDNN single-threaded on this thread (we slice the work
// ourselves).
const dnnl::stream& ThreadStream();
dnnl::memory::data_type TypeOf(ops::DType type);
// True if this CPU multiplies matrices of the type at speed: f32 always, bf16 and f16 with the instructions
// for them, f64 never.
bool MultipliesNatively(ops::DType type);

// One product of fixed sizes, layouts and epilogue. Immutable: any thread may run it, several at once.
class MatmulPrimitive {
 public:
  struct Spec {
    int64_t batch = 1, m = 0, n = 0, k = 0;
    ops::DType in = ops::DType::kFloat32, out_type = ops::DType::kFloat32;
    Strides a, b, out;
    dnnl::memory::format_tag b_tag =
        dnnl::memory::format_tag::undef;  // packed weights: their layout, instead of b
    bool row_bias = false;                // of type out_type
    ops::Activation activation = ops::Activation::kNone;
  };
  // nullptr if oneDNN has no fast implementation of it.
  static std::unique_ptr<MatmulPrimitive> Create(const Spec& spec);

  size_t scratch_bytes() const { return scratch_bytes_; }
  void Run(const void* a, const void* b, const void* bias, void* out, void* scratch) const;

 private:
  MatmulPrimitive() = default;
  dnnl::matmul primitive_;
  dnnl::memory::desc a_, b_, bias_, out_, scratch_;
  size_t scratch_bytes_ = 0;
  bool has_bias_ = false;
};

}  // namespace xpud::kernels::onednn
