#include "daemon/executor/process/executor_post.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/executor/process/launch_batch.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(1);
constexpr int kMaxFailures = 3;

double Milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

ExecutorPost::ExecutorPost(Options options, QueueSlots& queues, SpareExecutor& spare, MemoryMap& memory)
    : options_(std::move(options)),
      queues_(queues),
      spare_(spare),
      map_(memory),
      rings_(options_.rings),
      memory_(memory, shared_, options_.clients),
      replacer_(spare, options_.wake) {}

absl::StatusOr<std::unique_ptr<ExecutorPost>> ExecutorPost::Create(Options options, QueueSlots& queues,
                                                                   SpareExecutor& spare, MemoryMap& memory) {
  std::unique_ptr<ExecutorPost> post(new ExecutorPost(std::move(options), queues, spare, memory));
  ASSIGN_OR_RETURN(auto probes, memory.AllocateHost(Recovery::kProbeBytes));
  post->recovery_ = std::make_unique<Recovery>(post->options_.device, post->rings_, queues, post->memory_,
                                               std::move(probes));
  return post;
}

void ExecutorPost::End() {
  shared_.Publish(nullptr);
  if (process_ != nullptr) process_->Kill();  // aborts an import
}

absl::Status ExecutorPost::Fill(Process first) {
  RETURN_IF_ERROR(memory_.Adopt(first, {}));
  process_ = std::move(first);
  rings_.Connect(process_->rings());
  shared_.Publish(process_);
  state_ = State::kOnline;
  return absl::OkStatus();
}

void ExecutorPost::Open() {
  state_ = State::kOpening;
  failures_ = 0;
  lost_at_ = Clock::now();
  replacer_.Start(nullptr, Replacer::Ending::kEnded, map_.parts());
}

Process ExecutorPost::Vacate() {
  state_ = State::kVacant;
  rings_.Disconnect();
  memory_.Lose();
  shared_.Publish(nullptr);
  return std::exchange(process_, nullptr);
}

// Also after the end of the trace: of work that ended before.
void ExecutorPost::TakeTimes() {
  rings_.times().Take([&](const TimesExchange::Entry& entry) {
    ProcessQueue* const queue = queues_.Find(entry.queue);
    if (queue == nullptr) return;
    const WorkTime& time = entry.time;
    const bool one = time.what == WorkTime::What::kRan || time.what == WorkTime::What::kAppended;
    const bool several = time.what == WorkTime::What::kReplayed && time.count <= kMaxBatchLaunches;
    if (time.began_ns <= time.ended_ns && (several || (one && time.count == 1))) queue->AddTime(time);
  });
}

// ---- the executor's health, and the next one

void ExecutorPost::Poll(std::chrono::milliseconds command_limit) {
  if (state_ == State::kVacant) return;
  for (const auto& [owner, given] : memory_.TakeGiven()) {
    if (given.ok() || !queues_.Of(rings_, owner).empty() || !options_.apart) {
      recovery_->FinishMemory(owner, given);
    } else {  // its queues stay where they are
      spdlog::warn("memory_not_imported device={} post={} session={} error=\"{}\"", options_.device,
                   options_.name, owner, std::string(given.message()));
    }
  }
  if (rings_.online()) {
    TakeTimes();
    CheckHealth(command_limit);
    if (rings_.online()) ProbeSuspects(command_limit);
  } else if (auto replacement = replacer_.Take()) {
    FinishReplacement(*std::move(replacement));
  }
}

void ExecutorPost::CheckHealth(std::chrono::milliseconds command_limit) {
  using Ending = Replacer::Ending;
  const Clock::time_point now = Clock::now();
  if (now - last_check_ < kCheckInterval) return;
  last_check_ = now;
  const bool ended = process_->Ended();  // must be read before the reason in shared memory
  if (const auto fault = rings_.Fault())
    return Lose(Ending::kFaulted, absl::StrCat("its device faulted: ", *fault));
  if (ended)
    return process_->hung() ? Lose(Ending::kHung, "it did not answer") : Lose(Ending::kEnded, "it ended");
  // What the ring had no space for.
  queues_.ForEachOf(rings_, [](ProcessQueue& queue) { queue.SendRest(); });
  if (command_limit.count() == 0) return;
  if (std::vector<uint64_t> hung = hangs_.Check(command_limit); !hung.empty()) {
    const std::string what =
        hung.size() == 1 ? absl::StrCat("a command of session ", hung.front()) : "a command";
    Lose(Ending::kHung, absl::StrCat(what, " ran for longer than ", command_limit.count(), " ms"),
         std::move(hung));
  }
}

void ExecutorPost::ProbeSuspects(std::chrono::milliseconds command_limit) {
  recovery_->Probe();
  const auto overdue = recovery_->Overdue();
  if (!overdue || command_limit.count() != 0) return;
  Lose(Replacer::Ending::kHung,
       absl::StrCat("the commands of session ", *overdue,
                    " that were in flight when an executor was lost do not finish"),
       {*overdue});
}

void ExecutorPost::Lose(Replacer::Ending ending, const std::string& what, std::vector<uint64_t> hung) {
  ++lost_;
  loss_ = what;
  lost_at_ = Clock::now();
  hung_ = std::move(hung);
  spdlog::warn("executor_lost device={} post={} pid={} reason=\"{}\"", options_.device, options_.name,
               process_->pid(), what);
  state_ = State::kOpening;
  replaces_ = true;
  rings_.TakeOffline();
  memory_.Lose();
  replacer_.Start(process_, ending, map_.parts());
}

void ExecutorPost::FinishReplacement(Replacer::Replacement replacement) {
  if (process_ != nullptr) {
    if (hung_.empty() && !replacement.end.text.empty())
      absl::StrAppend(&loss_, " (", replacement.end.text, ")");
    recovery_->Begin(
        {loss_, std::exchange(hung_, {}), replacement.end.from_outside && !replacement.end.ours});
    rings_.Disconnect();
    process_ = nullptr;
  }
  const absl::Status adopted = Adopt(std::move(replacement));
  if (adopted.ok()) return;
  spdlog::error("executor_not_replaced device={} post={} error=\"{}\"", options_.device, options_.name,
                std::string(adopted.message()));
  if (++failures_ < kMaxFailures) return replacer_.Start(nullptr, Replacer::Ending::kEnded, map_.parts());
  state_ = State::kLost;
  shared_.Publish(nullptr);
  end_ = absl::StrCat("the device is lost: ", adopted.message());
}

void ExecutorPost::Blame() {
  queues_.ForEachOf(rings_, [&](const ProcessQueue& queue) { recovery_->Blame(queue.owner(), end_); });
}

void ExecutorPost::GiveUp(QueueHome& home) {
  recovery_->BlameSuspects(end_);
  queues_.ForEachOf(rings_, [&](ProcessQueue& queue) { queue.MoveAfterLoss(home); });
  Vacate();
}

absl::Status ExecutorPost::Adopt(Replacer::Replacement replacement) {
  RETURN_IF_ERROR(replacement.process.status());
  RETURN_IF_ERROR(memory_.Adopt(*replacement.process, replacement.memory));
  process_ = *std::move(replacement.process);
  failures_ = 0;
  kernels_.ForgetLoaded();
  hangs_.Restart();
  rings_.Connect(process_->rings());
  shared_.Publish(process_);
  state_ = State::kOnline;
  recovery_->Resume();
  spdlog::info("{} device={} post={} pid={} after_ms={:.0f} suspects={}",
               replaces_ ? "executor_replaced" : "executor_opened", options_.device, options_.name,
               process_->pid(), Milliseconds(Clock::now() - lost_at_), recovery_->suspects());
  if (std::exchange(replaces_, false)) ++replaced_;
  spare_.Start();
  return absl::OkStatus();
}

}  // namespace xpud::executor::process
