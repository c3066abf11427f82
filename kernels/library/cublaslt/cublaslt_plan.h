// How cuBLASLt computes one problem: descriptors, and the algorithm that it recommends, which is requested
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <level_zero/ze_api.h>

#include "kernels/library/cublaslt/cublaslt_api.h"
#include "kernels/library/matmul/matmul_problem.h"
#include "proto/base/mutex.h"

namespace xpud::kernels::cublaslt {

// The properties by which cuBLASLt chooses an algorithm. A plain value, compared by bytes.
struct Problem {
  matmul::MatmulProblem matmul;
  // Of the addresses, in bytes; at most 128.
  uint8_t a_alignment = 128, b_alignment = 128, c_alignment = 128, out_alignment = 128;
  bool bias = false;  // c is a row that the epilogue adds
  bool raw = false;   // out is the sum in f32 (f64), without gaps; no epilogue
  bool unused[2] = {};

  bool operator==(const Problem& other) const { return std::memcmp(this, &other, sizeof(*this)) == 0; }
  template <typename H>
  friend H AbslHashValue(H state, const Problem& p) {
    return H::combine_contiguous(std::move(state), reinterpret_cast<const unsigned char*>(&p), sizeof(p));
  }
};
static_assert(std::has_unique_object_representations_v<Problem>);

// Returns true if cuBLASLt multiplies matrices of this size in this type.
bool Multiplies(const matmul::MatmulProblem& problem);
// Returns true if its epilogue adds c and applies the activation.
bool Finishes(const matmul::MatmulProblem& problem);

// Returns the maximum workspace of an algorithm for the problem, in bytes.
size_t MostWorkspace(const matmul::MatmulProblem& problem);
ze_result_t ResultOf(Status status);

// Thread-safe. REQUIRES: each call passes the same library handle, whose context is current.
class Plan {
 public:
  Plan(const Api& api, const Problem& problem, size_t most_workspace)
      : api_(api), problem_(problem), most_workspace_(most_workspace) {}
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Returns the bytes of workspace that the algorithm needs. The first call chooses the algorithm.
  struct Prepared {
    Status status = Status::kSuccess;
    size_t workspace_bytes = 0;
  };
  Prepared Prepare(Handle handle);

  // Enqueues the product on `stream`. REQUIRES: Prepare succeeded; at least the workspace that it returned.
  Status Run(Handle handle, const matmul::MatmulOperands& operands, void* workspace, size_t workspace_bytes,
             void* stream);

 private:
  // A description of the product. One thread at a time uses it, because it holds the bias's address.
  struct Product {
    Desc desc = nullptr;
    const void* bias = nullptr;
  };
  Status MakeLayouts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status MakeProduct(Product& product) const;
  Status SetBias(Product& product, const void* bias) const;
  Status Multiply(Handle handle, const Product& product, const matmul::MatmulOperands& operands,
                  void* workspace, size_t workspace_bytes, void* stream) const;
  DataType OutputType() const;
  Status Take(Product& product);
  void Return(const Product& product);
  Status Choose(Handle handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Api& api_;
  const Problem problem_;
  const size_t most_workspace_;
  Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  size_t workspace_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Product> idle_ ABSL_GUARDED_BY(mutex_);
  // Constant once Prepare has succeeded.
  Layout a_ = nullptr, b_ = nullptr, c_ = nullptr, out_ = nullptr;
  Algo algo_ = {};
};

}  // namespace xpud::kernels::cublaslt
