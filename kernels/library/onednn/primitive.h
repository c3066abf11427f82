// A oneDNN matmul primitive, and the thread state that it needs. Catches oneDNN's exceptions.
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

// Returns the process's CPU engine.
const dnnl::engine& CpuEngine();
// Returns this thread's stream. The first call makes oneDNN single-threaded on this thread, because we cut
// the work ourselves.
const dnnl::stream& ThreadStream();
dnnl::memory::data_type TypeOf(ops::DType type);
// Returns true if this CPU multiplies matrices of the type fast: f32 always, bf16 and f16 with instructions
// for them, f64 never.
bool MultipliesNatively(ops::DType type);
// Returns whether this CPU multiplies tiles of bf16 (AMX).
bool MultipliesTiles();

// One product of fixed sizes, layouts and epilogue. Immutable and thread-safe.
class MatmulPrimitive {
 public:
  struct Spec {
    int64_t batch = 1, m = 0, n = 0, k = 0;
    ops::DType in = ops::DType::kFloat32, out_type = ops::DType::kFloat32;
    Strides a, b, out;
    dnnl::memory::format_tag b_tag =
        dnnl::memory::format_tag::undef;  // packed weights: their layout, used instead of b
    bool row_bias = false;                // of type out_type
  };
  // Returns nullptr if oneDNN has no fast implementation.
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
