#include "kernels/library/cublaslt/workspace_table.h"

namespace xpud::kernels::cublaslt {
namespace {

constexpr size_t kMaxAnswers = 4096;
constexpr int kMaxAttempts = 3;

}  // namespace

// If there are too many answers, all but the pending ones are dropped. They are requested again when needed.
WorkspaceTable::Answer& WorkspaceTable::AnswerTo(const Problem& problem) {
  const auto found = answers_.find(problem);
  if (found != answers_.end()) return *found->second;
  if (answers_.size() >= kMaxAnswers)
    absl::erase_if(answers_, [](const auto& entry) {
      return entry.second->stage.load(std::memory_order_acquire) != Stage::kAsked;
    });
  return *answers_.emplace(problem, std::make_unique<Answer>()).first->second;
}

WorkspaceTable::Found WorkspaceTable::Find(const Problem& problem) {
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

void WorkspaceTable::Ask(const Problem& problem, Answer& answer) const {
  Launch launch;
  launch.Reset(prepare_, 1);
  launch.Push(problem);
  const absl::StatusOr<uint64_t> bytes = ask_(launch);
  const bool again = absl::IsUnavailable(bytes.status()) && ++answer.attempts < kMaxAttempts;
  if (bytes.ok()) answer.bytes = *bytes;
  answer.stage.store(bytes.ok() ? Stage::kKnown
                     : again    ? Stage::kUnasked
                                : Stage::kRefused,
                     std::memory_order_release);
}

}  // namespace xpud::kernels::cublaslt
