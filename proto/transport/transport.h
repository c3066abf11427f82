// The seam between commands (wire) and the way they travel between a session and one device. The only
// implementation is shared memory; for a remote session, programs at both ends forward its contents
// (sdk/remote).
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

// The client's end. REQUIRES for Reserve, Commit, Publish and Claim: the client's lock. The other functions
// are thread-safe.
class ClientTransport {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kForever = Clock::time_point::max();

  virtual ~ClientTransport() = default;

  // Returns space for one command of `bytes` (a multiple of 8), or nullptr while the ring is full.
  virtual std::byte* Reserve(size_t bytes) = 0;
  virtual void Commit(size_t bytes) = 0;  // completes the reserved command
  virtual void Publish() = 0;             // makes all committed commands visible to the daemon, and wakes it
  // Asks the daemon to report the end of `what` (as in ControlPage::client_waits) at once, which costs a
  // device some work. Wait and Await call it.
  virtual void RequestAnswer(uint64_t what) = 0;

  // Says that a thread polls for progress. Progress is then reported even while another thread is in Await.
  // Thread-safe.
  virtual void NotePolling() = 0;

  virtual uint64_t Completed(uint32_t queue) const = 0;
  virtual uint32_t Errors(uint32_t queue) const = 0;
  virtual absl::Status LastError(
      uint32_t queue) const = 0;  // valid while there are errors that were not cleared
  virtual uint64_t Timestamp(uint32_t slot) const = 0;
  virtual uint64_t AllocatedBytes() const = 0;
  // Bytes that the session may hold without a ReserveCommand.
  virtual uint64_t Credit() const = 0;
  // Announces that the session will hold `bytes` of the device's memory. Returns whether the credit covers
  // them. Threads as for Reserve.
  virtual bool Claim(uint64_t bytes) = 0;
  // The sequence of the last answered ReserveCommand.
  virtual uint64_t AnsweredReserve() const = 0;
  // Returns why the last ReserveCommand was refused, or nullopt if it was granted.
  virtual std::optional<MemoryShortage> Refusal() const = 0;
  virtual std::span<std::byte> staging() = 0;

  // Blocks until `done` returns true: spins, then sleeps. Calls `interrupt` (may be empty) about every 50 ms;
  // its error ends the wait. Returns Unavailable if the daemon has closed the session or died.
  virtual absl::Status Wait(absl::FunctionRef<bool()> done,
                            const std::function<absl::Status()>& interrupt) = 0;
  // Blocks until the milestone is reached. Earlier progress wakes this thread only if another thread waits
  // for it.
  virtual absl::Status Await(const Milestone& milestone, const std::function<absl::Status()>& interrupt) = 0;
  struct Sleep {
    Clock::time_point until = kForever;  // deadline
    std::optional<Milestone> milestone;  // progress before it does not wake this thread
  };
  // Like Wait, without RequestAnswer: progress may be reported up to 100 us late.
  virtual absl::Status Listen(absl::FunctionRef<bool()> done, const std::function<absl::Status()>& interrupt,
                              const Sleep& sleep) = 0;
  // Wakes the threads that sleep in Listen, Wait or Await, so that they check their condition. A thread that
  // is about to sleep may miss it.
  virtual void LookAgain() = 0;
  // OK, or the reason why the session has ended.
  virtual absl::Status status() const = 0;
  // Returns Unavailable if the daemon has said that it closed the session; costs nothing. What was copied
  // from staging before is valid if the session is open, and so are errors and timestamps: afterwards these
  // are emptied.
  virtual absl::Status CheckOpen() const = 0;
};

// A mapping of a memfd, from the memfd's first byte.
struct SharedBytes {
  std::span<std::byte> bytes;
  int fd = -1;
};

// The daemon's end. REQUIRES: the lane's thread, unless a function says otherwise.
class ServerTransport {
 public:
  virtual ~ServerTransport() = default;

  // Returns complete commands, whose headers DecodeHeader accepts, in a private copy that stays valid until
  // the next call; empty if there are none. An error means that the client broke the protocol.
  virtual absl::StatusOr<std::span<const std::byte>> Receive() = 0;
  // Has the client say when it publishes commands, or no longer.
  virtual void WantPublishTimes(bool want) = 0;
  // When the command at byte `offset` of what Receive returned last was published, as its client says; it is
  // no earlier than for the commands before. nullopt: not known. REQUIRES: `offset` does not fall.
  virtual std::optional<uint64_t> PublishedNs(size_t offset) = 0;
  // Returns what the client has asked to be told about since the last call, as in ControlPage::client_waits;
  // 0: nothing. The commands that it names are already available to Receive.
  virtual uint64_t TakeWaitRequest() = 0;
  // The word that the device (or the lane) stores a queue's completed sequence in. Thread-safe.
  virtual uint64_t* CompletedWord(uint32_t queue) = 0;
  virtual uint64_t* TimestampWord(uint32_t slot) = 0;
  // Raises an error on a queue. REQUIRES: the queue's earlier error was cleared.
  virtual void RaiseError(uint32_t queue, uint64_t sequence, const absl::Status& error) = 0;
  virtual uint32_t Errors(uint32_t queue) const = 0;
  virtual void SetAllocatedBytes(uint64_t bytes) = 0;
  virtual std::atomic<uint64_t>* CreditWord() = 0;
  virtual const std::atomic<uint64_t>* ClaimWord() = 0;
  virtual void AnswerReserve(uint64_t sequence, const std::optional<MemoryShortage>& refusal) = 0;
  virtual SharedBytes staging() = 0;
  virtual SharedBytes completion_memory() = 0;  // whole pages that contain the words above
  // Wakes a waiting client if the progress that it waits for may have been made.
  virtual void WakeClient() = 0;
  // Before the lane sleeps on doorbell(), it calls SayAsleep on every session, BarrierBeforeSleep once,
  // then HasCommands on every session, and stays awake if commands have arrived.
  virtual void SayAsleep() = 0;
  virtual void BarrierBeforeSleep() = 0;
  virtual bool HasCommands() = 0;
  virtual void Awake() = 0;
  virtual int doorbell() const = 0;
  // Tells the client that the session has ended.
  virtual void Close(std::string_view reason, ClosedWord word) = 0;
};

}  // namespace xpud::transport
