#include "daemon/executor/api/chunk_mover.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {
namespace {

// So that a move that was forgotten ends soon, and a request to an executor too.
constexpr uint64_t kMaxPiece = uint64_t{64} << 20;

uint64_t SizeOf(const HostParts& parts) {
  uint64_t bytes = 0;
  for (const HostPart& part : parts) bytes += part.bytes;
  return bytes;
}

absl::Status Forgotten() { return absl::CancelledError("the move was forgotten"); }

}  // namespace

class ChunkMover::Job final : public Move, public MoveControl {
 public:
  enum class State { kOpen, kForgotten, kCommitted };

  Job(ChunkMover& mover, Direction& direction, Chunk& chunk, std::unique_ptr<Transfer> transfer, Done done,
      State state)
      : mover_(&mover),
        mover_ended_(mover.ended_),
        direction_(direction),
        chunk_(chunk),
        transfer_(std::move(transfer)),
        done_(std::move(done)),
        state_(state) {
    XPUD_CHECK(!std::exchange(chunk_.moves_, true));
  }

  bool Forget() override {
    State open = State::kOpen;
    if (!state_.compare_exchange_strong(open, State::kForgotten)) return open == State::kForgotten;
    if (mover_ != nullptr) mover_->Drop(*this);
    return true;
  }
  bool ended() const override { return mover_ended_.load(); }
  bool wanted() const override { return state_.load() != State::kForgotten && !ended(); }
  bool Commit() override {
    State open = State::kOpen;
    return state_.compare_exchange_strong(open, State::kCommitted) || open == State::kCommitted;
  }

  void Run(uint32_t thread) { status_ = wanted() ? transfer_->Run(thread, *this) : Forgotten(); }
  void Fail(absl::Status status) { status_ = std::move(status); }
  // Returns whether the transfer needs a thread again.
  bool RunsAgain() { return status_.ok() && !transfer_->Finish(); }
  Direction& direction() const { return direction_; }
  // No thread has it any more.
  void Release() {
    chunk_.moves_ = false;
    mover_ = nullptr;
    transfer_ = nullptr;
  }
  void Finish() {
    Release();
    const bool forgotten = state_.load() == State::kForgotten;
    std::exchange(done_, nullptr)(forgotten ? Forgotten() : status_);
  }

 private:
  ChunkMover* mover_;  // null: it is done, or the mover has ended
  const std::atomic<bool>& mover_ended_;
  Direction& direction_;
  Chunk& chunk_;
  std::unique_ptr<Transfer> transfer_;
  Done done_;
  absl::Status status_ = Forgotten();  // if no thread takes it
  std::atomic<State> state_;
};

ChunkMover::ChunkMover(std::function<void()> wake, Transfers& transfers)
    : wake_(std::move(wake)), transfers_(transfers) {}

ChunkMover::~ChunkMover() { End(); }

std::shared_ptr<Move> ChunkMover::StartLeave(Chunk& chunk, HostParts to, Done done) {
  XPUD_CHECK(SizeOf(to) <= chunk.bytes());
  return Start(std::make_shared<Job>(*this, out_, chunk, transfers_.Leave(chunk, std::move(to)),
                                     std::move(done), Job::State::kOpen));
}

std::shared_ptr<Move> ChunkMover::StartReturn(Chunk& chunk, HostParts from, Done done) {
  XPUD_CHECK(SizeOf(from) <= chunk.bytes());
  return Start(std::make_shared<Job>(*this, in_, chunk, transfers_.Return(chunk, std::move(from)),
                                     std::move(done), Job::State::kCommitted));
}

std::shared_ptr<Move> ChunkMover::Start(JobPointer job) {
  XPUD_CHECK(!ended_.load());
  Direction& direction = job->direction();
  if (absl::Status ready = EnsureThreads(direction); !ready.ok()) {
    job->Fail(std::move(ready));
    AddDone(job);
    return job;
  }
  const MutexLock lock(direction.mutex);
  direction.waiting.push_back(job);
  direction.changed.NotifyOne();
  return job;
}

// One thread is enough.
absl::Status ChunkMover::EnsureThreads(Direction& direction) {
  while (direction.threads.size() < kDirectionThreads) {
    const uint32_t thread = direction.first_thread + static_cast<uint32_t>(direction.threads.size());
    auto started = StartThread(direction.name, [this, &direction, thread] { Main(direction, thread); });
    if (!started.ok()) return direction.threads.empty() ? started.status() : absl::OkStatus();
    direction.threads.push_back(*std::move(started));
  }
  return absl::OkStatus();
}

void ChunkMover::Main(Direction& direction, uint32_t thread) {
  for (;;) {
    JobPointer job;
    {
      const MutexLock lock(direction.mutex);
      while (direction.waiting.empty() && !ended_.load()) direction.changed.Wait(direction.mutex);
      if (ended_.load()) return;
      job = std::move(direction.waiting.front());
      direction.waiting.pop_front();
    }
    job->Run(thread);
    AddDone(std::move(job));
  }
}

void ChunkMover::AddDone(JobPointer job) {
  {
    const MutexLock lock(done_mutex_);
    done_.push_back(std::move(job));
    any_done_.store(true, std::memory_order_release);
  }
  wake_();
}

void ChunkMover::Drop(const Job& job) {
  JobPointer dropped;
  {
    Direction& direction = job.direction();
    const MutexLock lock(direction.mutex);
    const auto found = std::ranges::find(direction.waiting, &job, &JobPointer::get);
    if (found == direction.waiting.end()) return;
    dropped = *found;
    direction.waiting.erase(found);
  }
  AddDone(std::move(dropped));
}

void ChunkMover::FinishDone() {
  if (!any_done_.load(std::memory_order_acquire)) return;
  std::vector<JobPointer> done;
  {
    const MutexLock lock(done_mutex_);
    done.swap(done_);
    any_done_.store(false, std::memory_order_relaxed);
  }
  for (const JobPointer& job : done) {
    if (!job->RunsAgain()) {
      job->Finish();
      continue;
    }
    Direction& direction = job->direction();
    const MutexLock lock(direction.mutex);
    direction.waiting.push_front(job);
    direction.changed.NotifyOne();
  }
}

void ChunkMover::End() {
  if (ended_.exchange(true)) return;
  for (Direction* const direction : {&out_, &in_}) {
    const MutexLock lock(direction->mutex);
    direction->changed.NotifyAll();
  }
  transfers_.Interrupt();
  for (Direction* const direction : {&out_, &in_}) {
    for (std::thread& thread : direction->threads) thread.join();
    const MutexLock lock(direction->mutex);
    for (const JobPointer& job : direction->waiting) job->Release();
    direction->waiting.clear();
  }
  const MutexLock lock(done_mutex_);
  for (const JobPointer& job : done_) job->Release();
  done_.clear();
  any_done_.store(false);
}

absl::Status CopyPieces(const HostParts& parts, const MoveControl& control,
                        absl::FunctionRef<absl::Status(uint64_t, std::byte*, uint64_t)> copy) {
  uint64_t offset = 0;
  for (auto part = parts.begin(); part != parts.end();) {
    const HostPart& first = *part;
    std::byte* const host = first.memory->OnDevice(first.memory->address() + first.offset);
    uint64_t together = 0;  // it and its neighbours
    while (part != parts.end() && part->memory == first.memory && part->offset == first.offset + together)
      together += (part++)->bytes;
    for (uint64_t done = 0; done < together;) {
      if (!control.wanted()) return absl::CancelledError("the move is not wanted any more");
      const uint64_t bytes = std::min(together - done, kMaxPiece);
      RETURN_IF_ERROR(copy(offset, host + done, bytes));
      offset += bytes;
      done += bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace xpud::executor
