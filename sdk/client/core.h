// One session as the client holds it: the transport, the order of commands, buffer ids, staging and
// accounting. Shared by the Session, its queues, buffers and events; the last one to go closes it. Any thread
// may call any method.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/transport/transport.h"
#include "proto/wire/encode.h"
#include "sdk/client/buffer_ids.h"
#include "sdk/client/connect.h"
#include "sdk/client/host_cache.h"
#include "sdk/client/spin_mutex.h"
#include "sdk/client/staging.h"
#include "xpud/xpud.h"

namespace xpud::client {

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Connection connection, const ConnectOptions& options);

  // The devices that this process may see ($XPUD_VISIBLE_DEVICES), in its own numbering.
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  const ops::RowSet& rows() const { return rows_; }
  // The default queue of a visible device.
  uint32_t default_queue(uint32_t device) const { return visible_[device]; }
  const std::string& address() const { return address_; }
  bool started_daemon() const { return started_daemon_; }
  bool forked() const;
  absl::Status status() const;

  absl::StatusOr<BufferHandle> Allocate(uint32_t queue, uint32_t device, uint64_t bytes);
  void Free(uint32_t device, BufferHandle handle, uint64_t bytes);
  absl::Status Execute(uint32_t queue, const OpCall& call);
  absl::Status Upload(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                      uint64_t offset);
  absl::Status Download(uint32_t queue, BufferHandle source, uint64_t offset, std::span<std::byte> target);
  // As Upload and Download, without waiting where the bytes lie in host memory.
  absl::Status StartUpload(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                           uint64_t offset);
  absl::Status StartDownload(uint32_t queue, BufferHandle source, uint64_t offset,
                             std::span<std::byte> target);
  absl::Status Copy(uint32_t queue, BufferHandle source, uint64_t source_offset, BufferHandle target,
                    uint64_t target_offset, uint64_t bytes);

  // Host memory that the daemon shares. Not after fork: the child does not have it.
  absl::StatusOr<HostCache::Block*> AllocateHost(uint64_t bytes);
  void FreeHost(HostCache::Block* block);
  bool IsHostMemory(const void* address);

  absl::StatusOr<uint32_t> CreateQueue(uint32_t device, int priority);
  absl::Status DestroyQueue(uint32_t queue);
  uint64_t LastSequence(uint32_t queue);
  absl::StatusOr<std::shared_ptr<const uint32_t>> RecordTimestamp(uint32_t queue);
  uint64_t Timestamp(uint32_t slot) const { return transport_->Timestamp(slot); }
  absl::Status WaitInQueue(uint32_t queue, uint32_t other, uint64_t sequence);

  bool IsComplete(uint32_t queue, uint64_t sequence) const {
    return transport_->Completed(queue) >= sequence;
  }
  // The same for one who looks again until it is.
  bool Query(uint32_t queue, uint64_t sequence) const {
    if (IsComplete(queue, sequence)) return true;
    transport_->NotePolling();
    return false;
  }
  // Waits for a command, then returns and clears its queue's error.
  absl::Status Await(uint32_t queue, uint64_t sequence);
  absl::Status Synchronize(uint32_t queue);
  absl::Status SynchronizeDevice(uint32_t device);

  MemoryStats Memory(uint32_t device);
  void ResetPeakMemory(uint32_t device);
  void ResetAccumulatedMemory(uint32_t device);

 private:
  struct QueueState {
    bool exists = false;
    uint32_t device = 0;
    uint64_t last_sequence = 0;
    uint32_t errors_reported = 0;
  };

  absl::Status CheckUsable() const;
  absl::Status UnknownOp(const ops::Row& row) const;
  // Runs `attempt` under the lock until it says true, waiting (without the lock) for the daemon to make room
  // in between.
  absl::Status UntilRoom(absl::FunctionRef<bool()> attempt);
  // Writes a fixed-size command; its sequence, or 0 when the ring has no room.
  template <typename Command>
  uint64_t Append(const Command& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* const space = transport_->Reserve(sizeof(Command));
    if (space == nullptr) [[unlikely]]
      return 0;
    std::memcpy(space, &command, sizeof(Command));
    return Committed(command.header.queue, sizeof(Command));
  }
  template <typename Command>
  absl::Status Send(const Command& command, bool publish);
  uint64_t Committed(uint32_t queue, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status UploadInline(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                            uint64_t offset);
  absl::Status UploadPiece(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                           uint64_t offset);
  // Takes a piece of staging and sends `command` with its offset filled in.
  template <typename Command>
  absl::StatusOr<Staging::Piece> SendStaged(Command command, std::span<const std::byte> source, bool held,
                                            uint64_t& sequence);
  // `sparing`: without more memory than it takes.
  absl::StatusOr<HostCache::Block*> TakeHost(uint64_t bytes, bool sparing);
  // Shares one more memory with the daemon.
  absl::Status AddHostMemory(uint64_t bytes);
  // Gives idle memories back until `keep` bytes of them are left; waits for the daemon to have them, if
  // asked.
  absl::Status TrimHost(uint64_t keep, bool wait);
  bool IsInHost(std::span<const std::byte> bytes);
  // Whether bytes are to be uploaded from host memory in place: more than `most`, or a command may yet write
  // them.
  bool UploadsInPlace(std::span<const std::byte> bytes, size_t most);
  // Copies bytes of host memory in pieces, as `command` says; `sequence` is the last one's.
  template <typename Command>
  absl::Status SendHost(Command command, std::span<const std::byte> bytes, uint64_t& sequence);
  absl::Status UploadHost(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                          uint64_t offset, uint64_t& sequence);
  absl::Status DownloadHost(uint32_t queue, BufferHandle source, uint64_t offset, std::span<std::byte> target,
                            uint64_t& sequence);
  absl::Status TakeError(uint32_t queue);
  bool HasCredit(uint32_t device, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the daemon for credit for a buffer and waits for the answer. OutOfMemory where there is none.
  absl::Status AskForCredit(uint32_t queue, uint32_t device, uint64_t bytes);
  void Charge(uint32_t device, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What kept this object for its buffers' sake, once the last of them is freed.
  std::shared_ptr<Core> Discharge(uint32_t device, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  std::unique_ptr<transport::ClientTransport> transport_;
  std::vector<DeviceInfo> devices_;
  std::vector<uint32_t>
      visible_;  // by visible device: its number at the daemon, which is also its default queue
  std::string address_, daemon_version_;
  ops::RowSet rows_;  // the ops that the daemon knows
  bool started_daemon_;
  std::function<absl::Status()> interrupt_;
  uint32_t fork_epoch_;
  std::atomic<bool> has_host_{false};  // there is or was host memory
  std::atomic<uint32_t> next_memory_{1};

  alignas(64) SpinMutex mutex_;  // of its own line: held for the writing of one command
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  BufferIds ids_ ABSL_GUARDED_BY(mutex_);
  std::array<MemoryStats, transport::kMaxDevices> memory_ ABSL_GUARDED_BY(mutex_);
  std::array<uint64_t, transport::kMaxDevices> charged_ ABSL_GUARDED_BY(mutex_){};  // as the daemon rounds
  uint64_t buffers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Core> self_ ABSL_GUARDED_BY(mutex_);  // while there are buffers: they do not count
  Staging staging_ ABSL_GUARDED_BY(mutex_);
  HostCache host_ ABSL_GUARDED_BY(mutex_);
  std::array<QueueState, wire::kMaxQueues> queues_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> free_timestamps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::client
