// How much workspace a vendor's library needs for each problem, answered by the process that owns the device.
// The library's thread only; the requests run in the store's background. Outlives the background work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kernels/api/kernel_store.h"
#include "kernels/api/launch.h"

namespace xpud::kernels {

// Problem: a plain value with a hash.
template <typename Problem>
class WorkspaceTable {
 public:
  // `prepare` is the HOST kernel that takes a problem and the address of the answer.
  WorkspaceTable(KernelStore& store, const Kernel* prepare, HostKernelRunner run)
      : store_(store), prepare_(prepare), run_host_kernel_(std::move(run)) {}

  enum class State : uint8_t {
    kAsked,  // look again after the store's on_ready
    kKnown,
    kRefused,  // the vendor's library does not support it
  };
  struct Found {
    State state = State::kAsked;
    uint64_t bytes = 0;  // kKnown
  };
  // The first call for a problem sends the request.
  Found Find(const Problem& problem);

 private:
  static constexpr size_t kMaxAnswers = 4096;
  static constexpr int kMaxAttempts = 3;

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
  const HostKernelRunner run_host_kernel_;
  absl::flat_hash_map<Problem, std::unique_ptr<Answer>> answers_;
};

// If there are too many answers, all but the pending ones are dropped. They are requested again when needed.
template <typename Problem>
typename WorkspaceTable<Problem>::Answer& WorkspaceTable<Problem>::AnswerTo(const Problem& problem) {
  const auto found = answers_.find(problem);
  if (found != answers_.end()) return *found->second;
  if (answers_.size() >= kMaxAnswers)
    absl::erase_if(answers_, [](const auto& entry) {
      return entry.second->stage.load(std::memory_order_acquire) != Stage::kAsked;
    });
  return *answers_.emplace(problem, std::make_unique<Answer>()).first->second;
}

template <typename Problem>
typename WorkspaceTable<Problem>::Found WorkspaceTable<Problem>::Find(const Problem& problem) {
  Answer& answer = AnswerTo(problem);
  switch (answer.stage.load(std::memory_order_acquire)) {
    case Stage::kKnown:
      return {State::kKnown, answer.bytes};
    case Stage::kRefused:
      return {State::kRefused, 0};
    case Stage::kAsked:
      return {};
    case Stage::kUnasked:
      break;
  }
  answer.stage.store(Stage::kAsked, std::memory_order_relaxed);
  store_.InBackground([this, problem, &answer] { Ask(problem, answer); });
  return {};
}

template <typename Problem>
void WorkspaceTable<Problem>::Ask(const Problem& problem, Answer& answer) const {
  Launch launch;
  launch.Reset(prepare_, 1);
  launch.Push(problem);
  const absl::StatusOr<uint64_t> bytes = run_host_kernel_(launch);
  const bool again = absl::IsUnavailable(bytes.status()) && ++answer.attempts < kMaxAttempts;
  if (bytes.ok()) answer.bytes = *bytes;
  answer.stage.store(bytes.ok() ? Stage::kKnown
                     : again    ? Stage::kUnasked
                                : Stage::kRefused,
                     std::memory_order_release);
}

}  // namespace xpud::kernels
