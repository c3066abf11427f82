// A session on one device as the client holds it: the ring, the order of commands, buffer ids, staging and
// accounting. Belongs to Core. Thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/round_size.h"
#include "proto/transport/transport.h"
#include "proto/wire/encode.h"
#include "sdk/client/buffer_ids.h"
#include "sdk/client/connect.h"
#include "sdk/client/kernel_ids.h"
#include "sdk/client/spin_mutex.h"
#include "sdk/client/staging.h"
#include "xpud/xpud.h"

namespace xpud::client {

class Core;

class DeviceSession {
 public:
  // `device`: as the client numbers it.
  DeviceSession(Core& core, uint32_t device, std::unique_ptr<transport::ClientTransport> transport,
                const Connection& connection, uint32_t used_generations, uint64_t peers);

  // Has no more buffers. Returns the highest generation of all that there were.
  uint32_t CloseBuffers() {
    SpinLock lock(mutex_);
    return ids_.Close();
  }

  // The functions of xpud::Queue; `queue` is one of this device's. Queue 0 exists from the start.
  absl::StatusOr<BufferHandle> Allocate(uint32_t queue, uint64_t bytes);
  void Free(BufferHandle handle, uint64_t bytes);
  absl::Status Execute(uint32_t queue, const OpCall& call);
  // Returns the kernel's id.
  absl::StatusOr<uint32_t> DefineKernel(uint32_t queue, std::span<const std::byte> bytes,
                                        std::string_view name);
  void ForgetKernel(uint32_t id);
  absl::Status PrepareKernel(uint32_t queue, uint32_t id, std::span<const int64_t> sizes,
                             std::span<const int64_t> elements);
  absl::Status Upload(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                      uint64_t offset);
  absl::Status Download(uint32_t queue, BufferHandle source, uint64_t offset, std::span<std::byte> target);
  absl::Status StartUpload(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                           uint64_t offset);
  absl::Status StartDownload(uint32_t queue, BufferHandle source, uint64_t offset,
                             std::span<std::byte> target);
  absl::Status Copy(uint32_t queue, BufferHandle source, uint64_t source_offset, BufferHandle target,
                    uint64_t target_offset, uint64_t bytes);

  // Whether the daemon copies from that device to this one without the host.
  bool CopiesFrom(const DeviceSession& source) const { return (peers_ >> source.at_daemon_ & 1) != 0; }
  // Copies from a buffer of another device of the session, after what was sent to both queues. REQUIRES:
  // CopiesFrom(source).
  absl::Status CopyFrom(uint32_t queue, DeviceSession& source, uint32_t source_queue, BufferHandle from,
                        uint64_t from_offset, BufferHandle to, uint64_t to_offset, uint64_t bytes);

  // See Session::Share, Attach and ReturnTicket. `bytes`: what the buffer has.
  absl::StatusOr<Ticket> Share(BufferHandle handle, uint64_t bytes);
  absl::StatusOr<BufferHandle> Attach(const Ticket& ticket, uint64_t& bytes);
  absl::Status ReturnTicket(const Ticket& ticket);

  absl::StatusOr<uint32_t> CreateQueue(int priority);
  absl::Status DestroyQueue(uint32_t queue);
  // Publishes all commands. Returns the sequence of the queue's last one.
  uint64_t LastSequence(uint32_t queue);
  // Returns the slot of the timestamp.
  absl::StatusOr<std::shared_ptr<const uint32_t>> RecordTimestamp(uint32_t queue);
  // See Queue::PushRange; without a name, PopRange.
  absl::Status SendRange(uint32_t queue, std::string_view name);
  uint64_t Timestamp(uint32_t slot) const { return transport_->Timestamp(slot); }
  // Later commands of `queue` wait for a command on queue `other` of `device`, which may be this one.
  absl::Status WaitInQueue(uint32_t queue, const DeviceSession& device, uint32_t other, uint64_t sequence);

  bool IsComplete(uint32_t queue, uint64_t sequence) const {
    return transport_->Completed(queue) >= sequence;
  }
  // How many errors of the queue threads have taken.
  uint32_t ErrorsTaken(uint32_t queue) {
    SpinLock lock(mutex_);
    return queues_[queue].errors_taken;
  }
  // Like IsComplete, for a caller that asks again until it is; then as Await.
  absl::StatusOr<bool> Query(uint32_t queue, uint64_t sequence, uint32_t since);
  // Waits for a command, then returns and clears its queue's error. If there is none, but another thread has
  // taken one since ErrorsTaken was `since`, returns that one: it may be the command's.
  absl::Status Await(uint32_t queue, uint64_t sequence, std::optional<uint32_t> since);
  // Waits for a command; leaves its queue's error.
  absl::Status AwaitCommand(uint32_t queue, uint64_t sequence);
  absl::Status Synchronize(uint32_t queue);
  absl::Status SynchronizeAll();  // every queue

  // The device gives up its access to a host memory. Returns the sequence of the command, on queue 0.
  absl::StatusOr<uint64_t> ReleaseHost(uint32_t memory);

  // See Session::ObserveCommands. When this returns, no call of the former observer is under way.
  void Observe(CommandObserver* observer) {
    SpinLock lock(mutex_);
    observer_ = observer;
  }

  MemoryStats Memory();
  // See Session::FreeMemory.
  absl::StatusOr<uint64_t> FreeMemory();
  void ResetPeakMemory();
  void ResetAccumulatedMemory();
  // OK, or the reason why the session has ended.
  absl::Status status() const { return transport_->status(); }
  // Waits until `until` for all commands. Returns the first error that no call has returned; leaves it.
  absl::Status UnreadError(std::chrono::steady_clock::time_point until);

 private:
  bool HasEnded() const;  // as Core's
  // Returns `status`, and tells Core if the session has ended.
  absl::Status Noted(absl::Status status) const;
  struct QueueState {
    bool exists = false;
    uint64_t last_sequence = 0;
    uint32_t errors_taken = 0;
    absl::Status last_error;  // of those that were taken
    std::thread::id taker;    // of the last one
  };

  absl::Status UnknownOp(const ops::Row& row) const;
  absl::Status CheckOperands(const OpCall& call) const;
  // Runs `attempt` under the lock until it returns true. In between, waits (without the lock) until the
  // daemon has made room.
  absl::Status UntilRoom(absl::FunctionRef<bool()> attempt);
  // Writes a command of fixed size. Returns its sequence, or 0 if the ring has no room.
  template <typename Command>
  uint64_t Append(const Command& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* const space = transport_->Reserve(sizeof(Command));
    if (space == nullptr) [[unlikely]]
      return 0;
    std::memcpy(space, &command, sizeof(Command));
    return Committed(command.header.queue, sizeof(Command));
  }
  // Appends a command, and publishes it. Returns its sequence.
  template <typename Command>
  absl::StatusOr<uint64_t> Send(const Command& command);
  uint64_t Committed(uint32_t queue, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status UploadInline(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                            uint64_t offset);
  absl::Status UploadPiece(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                           uint64_t offset);
  // Takes a piece of staging and sends `command` with the piece's offset.
  template <typename Command>
  absl::StatusOr<Staging::Piece> SendStaged(Command command, std::span<const std::byte> source, bool held,
                                            uint64_t& sequence);
  // Copies bytes of host memory in pieces, as `command` says. `sequence` is set to the last piece's.
  template <typename Command>
  absl::Status SendHost(Command command, std::span<const std::byte> bytes, uint64_t& sequence);
  absl::Status UploadHost(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                          uint64_t offset, uint64_t& sequence);
  absl::Status DownloadHost(uint32_t queue, BufferHandle source, uint64_t offset, std::span<std::byte> target,
                            uint64_t& sequence);
  absl::Status TakeError(uint32_t queue, std::optional<uint32_t> since);
  // Downloads once. Where another thread takes an error meanwhile, the bytes may not have come.
  absl::Status TryDownload(uint32_t queue, BufferHandle source, uint64_t offset, std::span<std::byte> target);
  bool HasCredit(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the daemon for credit of `bytes` in all, called under the lock, and waits for the answer. Returns
  // the limit that it exceeds, if any.
  absl::StatusOr<std::optional<MemoryShortage>> Reserve(uint32_t queue, absl::FunctionRef<uint64_t()> bytes);
  // Asks the daemon for credit for a buffer and waits for the answer. Returns OutOfMemory if it is refused.
  absl::Status AskForCredit(uint32_t queue, uint64_t bytes);
  void Charge(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    charged_ += RoundSize(bytes);
    Count(bytes);
  }
  void Count(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns what kept Core alive for the buffers, if this was the last one.
  std::shared_ptr<Core> Discharge(BufferHandle handle, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A command that the daemon answers in slots (wire::Answer). Its thread waits for that; any thread may do
  // what the answer means for accounting, since that may be what it waits for.
  struct Request {
    bool attaches = false;
    BufferHandle handle = {};
    uint64_t bytes = 0;  // of a buffer that is shared
    uint64_t sequence = 0;
    std::array<uint32_t, wire::kAnswerSlots> slots = {};
    bool settled = false;
    bool abandoned = false;  // its thread was interrupted
  };
  struct AnswerWords {
    wire::Answer answer;
    std::array<uint64_t, wire::kAnswerSlots - 1> words;
  };
  // A buffer whose memory is shared, or will be if the daemon allows it.
  struct Sharing {
    uint32_t generation = 0;
    uint32_t asked = 0;  // requests that are not settled
    bool shared = false;
  };
  // Sends what `append` writes for the request's slots, and waits for the answer. `append` returns the
  // sequence, or 0 if the ring has no room.
  absl::StatusOr<AnswerWords> Ask(Request request,
                                  absl::FunctionRef<absl::StatusOr<uint64_t>(Request&)> append);
  std::optional<wire::Answer> AnswerTo(const Request& request) const;
  // Does what answers that have come mean for accounting.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleOne(Request& request, wire::Answer answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Frees the buffer of an answered attach. Returns false if the ring has no room.
  bool FreeAttached(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckShares() const;
  // Appends both commands of a copy from `source`, or returns the one of the two whose ring has no room.
  DeviceSession* AppendCopy(DeviceSession& source, wire::LendCommand lend, wire::CopyFromCommand copy)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_, source.mutex_);

  // Constant after construction.
  Core& core_;
  const uint32_t device_;     // as the client numbers it
  const uint32_t at_daemon_;  // as the daemon does
  const std::unique_ptr<transport::ClientTransport> transport_;
  const uint64_t total_memory_;
  const uint64_t peers_;  // bit d: it copies from device d of the daemon

  alignas(64) SpinMutex mutex_;  // on a cache line of its own: held while one command is written
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t loans_ ABSL_GUARDED_BY(mutex_) = 0;  // that were made
  CommandObserver* observer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  BufferIds ids_ ABSL_GUARDED_BY(mutex_);
  KernelIds kernel_ids_ ABSL_GUARDED_BY(mutex_);
  MemoryStats memory_ ABSL_GUARDED_BY(mutex_);
  uint64_t charged_ ABSL_GUARDED_BY(mutex_) = 0;        // bytes, as the daemon rounds them
  uint64_t sharing_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of charged_: what the daemon may have moved already
  std::list<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, Sharing> sharing_ ABSL_GUARDED_BY(mutex_);  // by the buffer's id
  std::shared_ptr<Core> self_ ABSL_GUARDED_BY(mutex_);  // while there are buffers, which do not own Core
  Staging staging_ ABSL_GUARDED_BY(mutex_);
  std::array<QueueState, wire::kMaxQueues> queues_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> free_timestamps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::client
