// One session of a client on another machine: hands what its stream brings to the daemon's ring, and what the
// daemon's pages say to the stream. Where the client asked for it, it outlives a stream that is lost.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/remote/commands.h"
#include "proto/remote/frame.h"
#include "proto/remote/outbox.h"
#include "proto/remote/server_call.h"
#include "proto/transport/layout.h"
#include "proto/transport/transport.h"
#include "sdk/client/connect.h"

namespace xpud::remote {

class SessionRelay {
 public:
  // `resumable`: Run may be called again, with another stream, after it said kLost.
  SessionRelay(client::Connection connection, bool resumable);

  const transport::Welcome& welcome() const { return connection_->welcome; }
  // Before Run with another stream: the client has had the frames up to `received`. What is to be told to the
  // client: which of its frames have arrived. InvalidArgument: there were never so many.
  absl::StatusOr<uint64_t> Resume(uint64_t received);

  enum class End { kOver, kLost };
  // Until the client goes, the stream is lost, or the daemon ends the session, which the client is then told.
  // InvalidArgument: the client sent what no client would.
  absl::StatusOr<End> Run(ServerCall& call);

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

  // The reader's, which is the thread that saw a frame arrive; from the frame that does not fit into the
  // daemon's ring to the end of its commands, it is Run's.
  bool HasArrived(const grpc::ByteBuffer* message);
  void Disconnect(absl::Status why);
  absl::StatusOr<bool> Take(const grpc::ByteBuffer& message);  // as PutCommands
  absl::Status TakePayload(const ClientFrame& frame);
  // What is left of the frame's commands. False: not all of them fit.
  absl::StatusOr<bool> PutCommands();
  // InvalidArgument: its downloads want more of staging than there is, which no library's do.
  absl::Status Note(const wire::CommandHeader& header, std::span<const std::byte> command);
  // The writer's, which is Run's thread.
  void SendLoop(ServerCall& call);
  bool SendAgain(ServerCall& call);
  bool SendChanges(ServerCall& call, const absl::Status& status);
  bool Changed();
  // Takes the reader's place where a frame did not fit, and there is room now.
  bool CanPut();
  void PutRest(ServerCall& call);
  // Returns when a frame is due: at once for what the client waits for, an error or an acknowledgement; else
  // when something changed and the last frame left at least kProgressInterval ago.
  absl::Status AwaitFlush(ServerCall& call, const std::function<absl::Status()>& interrupt);
  // Whether something changed that the client is told without delay.
  bool IsAwaited();
  // Waits for the client's next request, or room for its commands, until `until`.
  void AwaitRequest(Clock::time_point until);
  uint64_t Asked();
  // As Asked, less what the client has been told. The writer's.
  uint64_t Unanswered();
  // The milestone, or that of bytes which come before it and travel meanwhile.
  std::optional<transport::Milestone> EndToHearOf(std::optional<transport::Milestone> end);
  // The client has been told of what it asked for.
  bool HasTold(uint64_t asked) const;
  bool MemoryChanged(uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle(uint32_t device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddQueue(uint32_t queue, ServerFrame& frame);
  void AddDone(const Awaited& done, ServerFrame& frame);
  void AddMemory(uint32_t device, ServerFrame& frame);
  void TakeBack(const v1::CreditKept& kept);

  const std::shared_ptr<client::Connection> connection_;  // its staging is also what lies in sent frames
  transport::ClientTransport& transport_;
  const uint32_t devices_;
  std::atomic<bool> gone_{false};  // the stream's client
  absl::Status failure_;           // why it was disconnected
  Inbox inbox_;
  Outbox<v1::ServerHead> outbox_;
  // The reader's.
  uint64_t sequence_ = 0;
  bool ends_ = false;                                           // the client said so
  uint64_t waits_ = 0;                                          // what the last frame waits for
  std::vector<std::byte> commands_;                             // of the last frame
  size_t put_ = 0;                                              // bytes of them that the daemon has
  size_t missing_ = 0;                                          // in the ring, for the next of them
  std::array<std::atomic<uint64_t>, wire::kMaxQueues> last_{};  // command of each queue that was put
  std::atomic<uint32_t> queues_in_use_;                         // those below; the devices' own are the first
  std::atomic<bool> stuck_{false};                              // not all of them have found room
  Mutex mutex_;
  CondVar work_;  // there is some for the writer: asked_, stuck_, gone_
  // What the client has asked for and was not told: as ControlPage::client_waits; any progress: the end of
  // all that it has sent.
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::deque<Awaited>, wire::kMaxQueues> awaited_ ABSL_GUARDED_BY(mutex_);
  uint64_t awaited_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of staging
  std::array<QueueSeen, wire::kMaxQueues> queues_;      // the writer's: what was sent
  Clock::time_point sent_;                              // the last of it
  std::array<MemorySeen, transport::kMaxDevices> memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::remote
