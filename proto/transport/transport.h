// The seam between what is said (wire) and how it travels: shared memory, also over a network, where programs
// at both ends carry what is in it (sdk/remote).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/layout.h"

namespace xpud::transport {

// The client's end. Reserve, Commit and Publish: one thread at a time (the client's lock); the rest: any
// thread.
class ClientTransport {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kForever = Clock::time_point::max();

  virtual ~ClientTransport() = default;

  // Space for one command of `bytes` (a multiple of 8), or nullptr while the daemon has not taken enough of
  // the earlier ones.
  virtual std::byte* Reserve(size_t bytes) = 0;
  virtual void Commit(size_t bytes) = 0;  // the reserved command is whole
  virtual void Publish() = 0;             // everything committed may be taken; wakes a sleeping daemon
  // Somebody waits for what was published: its end is to be told at once, which costs a device some work.
  // `what`: as in ControlPage::client_waits. Any thread; Wait and Await do it, too.
  virtual void RequestAnswer(uint64_t what) = 0;

  // Somebody looks, without waiting, whether something has ended, which it has not: progress is to be told
  // also while another thread Awaits one command's end. Any thread.
  virtual void NotePolling() = 0;

  virtual uint64_t Completed(uint32_t queue) const = 0;
  virtual uint32_t Errors(uint32_t queue) const = 0;
  virtual absl::Status LastError(
      uint32_t queue) const = 0;  // valid while Errors() is ahead of what was cleared
  virtual uint64_t Timestamp(uint32_t slot) const = 0;
  virtual uint64_t AllocatedBytes(uint32_t device) const = 0;
  // What the session may hold without asking.
  virtual uint64_t Credit(uint32_t device) const = 0;
  // Says that so many bytes of the device's memory are to be used; whether the credit covers them. Like
  // Reserve.
  virtual bool Claim(uint32_t device, uint64_t bytes) = 0;
  // As MemoryStatus.
  virtual uint64_t AnsweredReserve(uint32_t device) const = 0;
  // Why the last answer was no; nothing where it was yes.
  virtual std::optional<MemoryShortage> Refusal(uint32_t device) const = 0;
  virtual std::span<std::byte> staging() = 0;

  // Gives the daemon host memory, for the devices in the mask, and waits until they have it, which takes some
  // 0.3 s a GiB on GPUs. `id`: not in use, not 0. ResourceExhausted: beyond the session's limit.
  // Unimplemented: this transport has no memory in common with the daemon.
  virtual absl::Status ShareHostMemory(uint32_t id, const UniqueFd& memory, uint64_t bytes,
                                       uint64_t devices) = 0;

  // Waits until `done` holds: spins, then sleeps. `interrupt` (may be empty) is asked about every 50 ms; its
  // error ends the wait. Unavailable when the daemon closed the session or died.
  virtual absl::Status Wait(absl::FunctionRef<bool()> done,
                            const std::function<absl::Status()>& interrupt) = 0;
  // The same until the milestone has been reached; where nothing else waits, it is not woken before.
  virtual absl::Status Await(const Milestone& milestone, const std::function<absl::Status()>& interrupt) = 0;
  struct Sleep {
    Clock::time_point until = kForever;  // the longest
    std::optional<Milestone> milestone;  // commands that end before it need not wake
  };
  // As Wait, without RequestAnswer: of what ends, it may hear up to 100 us later.
  virtual absl::Status Listen(absl::FunctionRef<bool()> done, const std::function<absl::Status()>& interrupt,
                              const Sleep& sleep) = 0;
  // Who sleeps in Listen, Wait or Await looks again at once; who is about to may not.
  virtual void LookAgain() = 0;
  // OK, or why the session has ended.
  virtual absl::Status status() const = 0;
};

// Memory that a memfd backs from its start, mapped here.
struct SharedBytes {
  std::span<std::byte> bytes;
  int fd = -1;
};

// The daemon's end of one session. The engine thread only.
class ServerTransport {
 public:
  virtual ~ServerTransport() = default;

  // Whole commands, in a private copy that stays valid until the next call, their headers as DecodeHeader
  // wants them; empty when there are none. An error is a breach of protocol.
  virtual absl::StatusOr<std::span<const std::byte>> Receive() = 0;
  // What the client has asked for an answer about since this was last called, as in
  // ControlPage::client_waits: 0, nothing. What it asked about is there for Receive.
  virtual uint64_t TakeWaitRequest() = 0;
  // Where the device (or the engine) stores a queue's completed sequence.
  virtual uint64_t* CompletedWord(uint32_t queue) = 0;
  virtual uint64_t* TimestampWord(uint32_t slot) = 0;
  // Raises an error on a queue whose earlier one has been cleared.
  virtual void RaiseError(uint32_t queue, uint64_t sequence, const absl::Status& error) = 0;
  virtual uint32_t Errors(uint32_t queue) const = 0;
  virtual void SetAllocatedBytes(uint32_t device, uint64_t bytes) = 0;
  virtual std::atomic<uint64_t>* CreditWord(uint32_t device) = 0;
  virtual const std::atomic<uint64_t>* ClaimWord(uint32_t device) = 0;
  virtual void AnswerReserve(uint32_t device, uint64_t sequence,
                             const std::optional<MemoryShortage>& refusal) = 0;
  virtual SharedBytes staging() = 0;
  virtual SharedBytes completion_memory() = 0;  // where the words above lie, in whole pages
  // Lets a client that waits look again, if what it waits for may have come.
  virtual void WakeClient() = 0;
  // Before the engine sleeps on doorbell(): SayAsleep on every session, one BarrierBeforeSleep for all, then
  // HasCommands on every session tells whether some have arrived after all.
  virtual void SayAsleep() = 0;
  virtual void BarrierBeforeSleep() = 0;
  virtual bool HasCommands() = 0;
  virtual void Awake() = 0;
  virtual int doorbell() const = 0;
  virtual void Close(std::string_view reason) = 0;
};

}  // namespace xpud::transport
