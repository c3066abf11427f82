// How cuBLASLt computes one problem: descriptors, and the algorithm that it recommends, asked for once.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <level_zero/ze_api.h>

#include "kernels/library/cublaslt/cublaslt_api.h"
#include "kernels/library/matmul/matmul_problem.h"
#include "proto/base/mutex.h"

namespace xpud::kernels::cublaslt {

// What cuBLASLt chooses an algorithm by. A plain value, compared by bytes.
struct Problem {
  matmul::MatmulProblem matmul;
  // Of the addresses, in bytes, at most 128.
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

// True if cuBLASLt multiplies matrices of this size in this type.
bool Multiplies(const matmul::MatmulProblem& problem);
// True if its epilogue adds c and applies the activation.
bool Finishes(const matmul::MatmulProblem& problem);

// The library's handle for a device, made when first needed because that takes the device's context. It lasts
// as long as the process: destroying it would take the context too, which may be gone by then.
class Device {
 public:
  explicit Device(const Api& api) : api_(api) {}
  const Api& api() const { return api_; }
  // The handle for `context`, which is current; nullptr if there can be none.
  Handle HandleFor(void* context);

 private:
  const Api& api_;
  Mutex mutex_;
  void* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Handle handle_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

class Plan {
 public:
  Plan(Device& device, const Problem& problem);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // How much workspace to give Run: what the algorithm takes, once that is known.
  size_t workspace_bytes() const { return workspace_bytes_.load(std::memory_order_relaxed); }

  // Enqueues the product on `stream`, with `context` current. Any thread, one at a time enters.
  ze_result_t Run(const matmul::MatmulOperands& operands, void* workspace, size_t workspace_bytes,
                  void* context, void* stream);

 private:
  Status Prepare(Handle handle, const matmul::MatmulOperands& operands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status Describe(const void* bias) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status Choose(Handle handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device& device_;
  const Problem problem_;
  std::atomic<size_t> workspace_bytes_;
  Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  Desc desc_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Layout a_ ABSL_GUARDED_BY(mutex_) = nullptr, b_ ABSL_GUARDED_BY(mutex_) = nullptr,
            c_ ABSL_GUARDED_BY(mutex_) = nullptr, out_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Algo algo_ ABSL_GUARDED_BY(mutex_) = {};
  const void* bias_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace xpud::kernels::cublaslt
