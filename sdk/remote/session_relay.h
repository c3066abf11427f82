// One session of a client on another machine: hands what the stream brings to the daemon's ring, and what the
// daemon's pages say to the stream.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "proto/remote/commands.h"
#include "proto/remote/remote.grpc.pb.h"
#include "proto/transport/layout.h"
#include "proto/transport/transport.h"

namespace xpud::remote {

class SessionRelay {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ServerMessage, v1::ClientMessage>;

  SessionRelay(transport::ClientTransport& transport, uint32_t devices, Stream& stream)
      : transport_(transport), devices_(devices), stream_(stream) {}

  // Until the client goes, or the daemon ends the session, which the client is then told. `cancel` ends the
  // stream. InvalidArgument: the client sent what no client would.
  absl::Status Run(const std::function<void()>& cancel);

 private:
  using Clock = std::chrono::steady_clock;
  // A command whose end has something to be sent: staging that a download filled, or a timestamp.
  struct Awaited {
    uint64_t sequence;
    Part part;
    uint32_t slot = UINT32_MAX;
  };
  struct QueueSeen {
    uint64_t completed = 0;
    uint32_t errors = 0;
  };
  // What the client knows of its memory on a device.
  struct MemorySeen {
    uint64_t credit = 0, allocated = 0, answered = 0;
    uint64_t number = 0;
    bool gave_less = false;  // the client is asked to give credit back, or has
    Clock::time_point since;
  };

  // The stream's reader.
  absl::Status Take(const v1::ClientMessage& message);
  absl::Status Put(const wire::CommandHeader& header, std::span<const std::byte> command);
  // InvalidArgument: its downloads want more of staging than there is, which no library's do.
  absl::Status Note(const wire::CommandHeader& header, std::span<const std::byte> command);
  absl::Status WaitInDaemon(absl::FunctionRef<bool()> done);
  // The stream's writer.
  void SendLoop(const std::function<void()>& cancel);
  bool Changed();
  bool MemoryChanged(uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle(uint32_t device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddChanges(v1::ServerMessage& message);
  void AddQueue(uint32_t queue, v1::ServerMessage& message);
  void AddMemory(uint32_t device, v1::ServerMessage& message);
  void TakeBack(const v1::CreditKept& kept);

  transport::ClientTransport& transport_;
  const uint32_t devices_;
  Stream& stream_;
  std::atomic<bool> gone_{false};  // the client
  uint64_t sequence_ = 0;          // the reader's
  Mutex mutex_;
  std::array<std::deque<Awaited>, wire::kMaxQueues> awaited_ ABSL_GUARDED_BY(mutex_);
  uint64_t awaited_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of staging
  std::array<QueueSeen, wire::kMaxQueues> queues_;      // the writer's: what was sent
  std::array<MemorySeen, transport::kMaxDevices> memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::remote
