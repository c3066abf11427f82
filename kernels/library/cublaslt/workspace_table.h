// How much workspace cuBLASLt takes for each problem, as the process that has the device answers. The
// library's thread only, but for the questions, which run in the store's background. Outlives that.
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
  // `prepare` is the kernel of this name.
  WorkspaceTable(KernelStore& store, const Kernel* prepare, AskDevice ask)
      : store_(store), prepare_(prepare), ask_(std::move(ask)) {}

  enum class State : uint8_t {
    kAsked,  // look again when the store says that something is ready
    kKnown,
    kRefused,  // cuBLASLt does not do it
  };
  struct Found {
    State state = State::kAsked;
    uint64_t bytes = 0;  // kKnown
  };
  // Asks at the first look.
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
