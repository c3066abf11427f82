// How much workspace cuBLASLt needs for each problem, answered by the process that owns the device. The
// library's thread only; the requests run in the store's background. Outlives the background work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "kernels/api/kernel_store.h"
#include "kernels/library/cublaslt/cublaslt_plan.h"

namespace xpud::kernels::cublaslt {

class WorkspaceTable {
 public:
  // `prepare` is the kernel cublaslt_prepare.
  WorkspaceTable(KernelStore& store, const Kernel* prepare, AskDevice ask)
      : store_(store), prepare_(prepare), ask_(std::move(ask)) {}

  enum class State : uint8_t {
    kAsked,  // look again after the store's on_ready
    kKnown,
    kRefused,  // cuBLASLt does not support it
  };
  struct Found {
    State state = State::kAsked;
    uint64_t bytes = 0;  // kKnown
  };
  // The first call for a problem sends the request.
  Found Find(const Problem& problem);

 private:
  enum class Stage : uint8_t { kUnasked, kAsked, kKnown, kRefused };
  struct Answer {
    std::atomic<Stage> stage{Stage::kUnasked};
    uint64_t bytes = 0;  // written before stage
    int attempts = 0;    // in the background only
  };
  void Ask(const Problem& problem, Answer& answer) const;
  Answer& AnswerTo(const Problem& problem);

  KernelStore& store_;
  const Kernel* const prepare_;
  const AskDevice ask_;
  absl::flat_hash_map<Problem, std::unique_ptr<Answer>> answers_;
};

}  // namespace xpud::kernels::cublaslt
