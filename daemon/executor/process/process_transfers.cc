#include "daemon/executor/process/process_transfers.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "daemon/executor/process/memory_holder.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

using MoverEnd = ExecutorProcess::MoverEnd;

// For host memory that an executor does not have yet. Registering takes up to 0.6 s a GiB, or longer if it is
// in swap.
constexpr auto kAwaitHostMemory = std::chrono::seconds(60);

absl::Status Forgotten() { return absl::CancelledError("the move was forgotten"); }

bool IsSame(const std::weak_ptr<ExecutorProcess>& a, const Process& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

// What leaves and returns share: all executors get another state of one chunk.
class ProcessTransfers::Exchange : public Transfer {
 protected:
  Exchange(MemoryMap& map, const Chunk& chunk, HostParts parts)
      : map_(map),
        executors_(map.Executors()),
        address_(reinterpret_cast<uint64_t>(chunk.address())),
        bytes_(chunk.bytes()),
        parts_(std::move(parts)) {}

  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

  // ---- on a mover's thread

  // Calls `use` with the executor that allocates, and again with the next one while they are lost.
  absl::Status UseFirst(const MoveControl& control, absl::FunctionRef<absl::Status(const Process&)> use) {
    Process used;
    for (;;) {
      // Also after Forget: a lost executor may access memory until the next one is there.
      used = executors_.front()->OtherThan(used, [&] { return !control.ended(); });
      if (control.ended()) return Forgotten();
      if (used == nullptr) return absl::UnavailableError("the device's executor is lost");
      absl::Status done = use(used);
      if (!absl::IsUnavailable(done)) return done;
    }
  }
  // Chunks are freed by another channel, which nobody waits for.
  void AwaitFrees() {
    for (SharedExecutor* const executors : executors_)
      if (const Process process = executors->Get(); process != nullptr) (void)process->IsThere();
  }
  // Copies by `copy`, a function of MoverEnd.
  absl::Status Copy(MoverEnd end, const MoveControl& control,
                    absl::Status (MoverEnd::*copy)(uint64_t, const std::byte*, uint64_t)) {
    const auto until = std::chrono::steady_clock::now() + kAwaitHostMemory;
    return CopyPieces(parts_, control, [&](uint64_t offset, const std::byte* host, uint64_t bytes) {
      for (;;) {
        absl::Status copied = (end.*copy)(address_ + offset, host, bytes);
        if (!absl::IsNotFound(copied)) return copied;
        // The executor has waited for it.
        if (!control.wanted()) return Forgotten();
        if (std::chrono::steady_clock::now() > until) return absl::InternalError(copied.message());
      }
    });
  }
  // Changes the executors that do not have the change, by `change`. If one refuses, those that have it go
  // back, by `back`. One that is lost counts as changed.
  absl::Status Change(uint32_t thread, absl::FunctionRef<absl::Status(MoverEnd)> change,
                      absl::FunctionRef<absl::Status(MoverEnd)> back) {
    for (SharedExecutor* const executors : executors_) {
      const Process process = executors->Get();
      if (process == nullptr || HasChanged(process)) continue;
      const absl::Status status = change(process->mover(thread));
      if (!status.ok() && !absl::IsUnavailable(status)) {
        GoBack(thread, back);
        return status;
      }
      NoteChanged(process);
    }
    return absl::OkStatus();
  }
  void NoteChanged(const Process& process) { changed_.push_back(process); }
  // An executor that cannot go back is of no use: its successor gets what is listed.
  void GoBack(uint32_t thread, absl::FunctionRef<absl::Status(MoverEnd)> back) {
    for (SharedExecutor* const executors : executors_) {
      const Process process = executors->Get();
      if (process == nullptr || !HasChanged(process)) continue;
      if (!back(process->mover(thread)).ok()) process->Kill();
    }
    changed_.clear();
  }

  // ---- on the lane's thread

  // Lists the change, if all executors have it. Those that come later get what is listed then.
  bool List(const std::shared_ptr<UniqueFd>& memory) {
    for (const Process& process : map_.Present())
      if (!HasChanged(process)) return false;
    map_.SetMemory(address_, memory);
    return true;
  }

 private:
  bool HasChanged(const Process& process) const {
    return std::ranges::any_of(changed_, [&](const auto& other) { return IsSame(other, process); });
  }

  MemoryMap& map_;
  const std::vector<SharedExecutor*> executors_;  // the first one allocates
  const uint64_t address_, bytes_;
  const HostParts parts_;
  std::vector<std::weak_ptr<ExecutorProcess>> changed_;
};

class ProcessTransfers::LeaveExchange final : public Exchange {
 public:
  LeaveExchange(MemoryMap& map, const Chunk& chunk, HostParts to)
      : Exchange(map, chunk, std::move(to)), memory_(map.MemoryAt(address())) {
    XPUD_CHECK(memory_ != nullptr);
  }

  absl::Status Run(uint32_t thread, MoveControl& control) override {
    if (listed_) {
      memory_ = nullptr;  // the memory is free now
      return absl::OkStatus();
    }
    const auto leave = [&](MoverEnd end) { return end.Reserve(address(), bytes()); };
    const auto stay = [&](MoverEnd end) { return end.Import(address(), bytes(), *memory_); };
    if (!copied_) {
      RETURN_IF_ERROR(CopyOut(thread, control));
      if (!control.Commit()) return Forgotten();
      copied_ = true;
    }
    return Change(thread, leave, stay);
  }

  bool Finish() override {
    if (listed_) return true;
    listed_ = List(nullptr);
    return false;
  }

 private:
  absl::Status CopyOut(uint32_t thread, const MoveControl& control) {
    return UseFirst(control, [&](const Process& process) {
      return Copy(process->mover(thread), control, &MoverEnd::CopyOut);
    });
  }

  std::shared_ptr<UniqueFd> memory_;
  bool copied_ = false, listed_ = false;
};

class ProcessTransfers::ReturnExchange final : public Exchange {
 public:
  ReturnExchange(MemoryMap& map, const Chunk& chunk, HostParts from) : Exchange(map, chunk, std::move(from)) {
    XPUD_CHECK(map.MemoryAt(address()) == nullptr);
  }

  absl::Status Run(uint32_t thread, MoveControl& control) override {
    const auto back = [&](MoverEnd end) { return end.Reserve(address(), bytes()); };
    if (memory_ == nullptr) {
      RETURN_IF_ERROR(UseFirst(control, [&](const Process& process) {
        absl::Status brought = Bring(process->mover(thread), control);
        NoteChanged(process);
        if (brought.ok()) return brought;
        if (memory_ != nullptr && !absl::IsUnavailable(brought)) GoBack(thread, back);
        memory_ = nullptr;
        return brought;
      }));
    }
    absl::Status changed =
        Change(thread, [&](MoverEnd end) { return end.Import(address(), bytes(), *memory_); }, back);
    if (!changed.ok()) memory_ = nullptr;
    return changed;
  }

  bool Finish() override { return List(memory_); }

 private:
  absl::Status Bring(MoverEnd end, const MoveControl& control) {
    auto fd = end.Allocate(address(), bytes());
    if (absl::IsResourceExhausted(fd.status())) {
      AwaitFrees();
      fd = end.Allocate(address(), bytes());
    }
    RETURN_IF_ERROR(fd.status());
    memory_ = std::make_shared<UniqueFd>(*std::move(fd));
    return Copy(end, control, &MoverEnd::CopyIn);
  }

  std::shared_ptr<UniqueFd> memory_;  // null: the chunk is away
};

std::unique_ptr<Transfer> ProcessTransfers::Leave(Chunk& chunk, HostParts to) {
  return std::make_unique<LeaveExchange>(map_, chunk, std::move(to));
}

std::unique_ptr<Transfer> ProcessTransfers::Return(Chunk& chunk, HostParts from) {
  return std::make_unique<ReturnExchange>(map_, chunk, std::move(from));
}

void ProcessTransfers::Interrupt() {
  for (SharedExecutor* const executors : map_.Executors()) executors->Interrupt();
}

}  // namespace xpud::executor::process
