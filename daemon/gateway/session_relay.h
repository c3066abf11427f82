// A remote client's session on one device. Copies commands from the client's stream to the daemon's ring, and
// results from the daemon's pages to the stream. If the client asked for it, the relay outlives a lost
// stream.
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

namespace xpud::remote {

class SessionRelay {
 public:
  // `resumable`: after Run returned kLost, it may be called again with another stream.
  SessionRelay(std::shared_ptr<transport::ClientTransport> transport, bool resumable);

  // Called before Run with another stream. The client has received the frames up to `received`. Returns the
  // number of frames that arrived from the client, or InvalidArgument if fewer than `received` were sent.
  absl::StatusOr<uint64_t> Resume(uint64_t received);

  enum class End { kOver, kLost };
  // Runs until the client leaves, the stream is lost, or the daemon ends the session; in the last case it
  // tells the client. Returns InvalidArgument if the client broke the protocol.
  absl::StatusOr<End> Run(ServerCall& call);

 private:
  using Clock = std::chrono::steady_clock;
  // A command whose completion sends data: staging that a download filled, or a timestamp.
  struct Awaited {
    uint64_t sequence;
    Part part;
    uint32_t slot = UINT32_MAX;
  };
  struct QueueSeen {
    uint64_t completed = 0;
    uint32_t errors = 0;
  };
  // The device's memory as the client was told.
  struct MemorySeen {
    uint64_t credit = 0, allocated = 0, answered = 0;
    uint64_t number = 0;
    bool asked_to_return = false;  // the client was asked to give credit back
    Clock::time_point since;
  };

  // For the reading thread, on which a frame arrived. If a frame does not fit into the daemon's ring, Run's
  // thread calls them until all of the frame's commands are in the ring.
  bool HasArrived(const grpc::ByteBuffer* message);
  void Disconnect(absl::Status why);
  absl::StatusOr<bool> Take(const grpc::ByteBuffer& message);  // returns as PutCommands
  absl::Status TakePayload(const ClientFrame& frame);
  // Puts the remaining commands of the frame into the ring. Returns false if some do not fit.
  absl::StatusOr<bool> PutCommands();
  // Returns InvalidArgument if the downloads in flight exceed the staging memory, which no library causes.
  absl::Status Note(const wire::CommandHeader& header, std::span<const std::byte> command);
  // The command's answer will be sent.
  absl::Status NoteAnswer(const wire::CommandHeader& header, std::span<const std::byte> command);
  // For the writing thread, which is Run's.
  void SendLoop(ServerCall& call);
  bool SendAgain(ServerCall& call);
  bool SendChanges(ServerCall& call, const absl::Status& status);
  bool Changed();
  // Whether a frame is stuck and the ring has space for it now.
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
  // Asked(), without what the client was already told. On the writing thread.
  uint64_t Unanswered();
  // Returns the milestone that the client must hear of: `end`, or an earlier one whose data must be sent
  // first.
  std::optional<transport::Milestone> MilestoneToReport(std::optional<transport::Milestone> end);
  // Whether the client was told of what it asked for.
  bool WasReported(uint64_t asked) const;
  bool MemoryChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddQueue(uint32_t queue, ServerFrame& frame);
  void AddDone(const Awaited& done, ServerFrame& frame);
  void AddMemory(ServerFrame& frame);
  void TakeBack(const v1::CreditKept& kept);

  const std::shared_ptr<transport::ClientTransport> shared_;
  transport::ClientTransport& transport_;
  std::atomic<bool> gone_{false};  // the client has disconnected
  absl::Status failure_;           // why this end disconnected it
  Inbox inbox_;
  Outbox<v1::ServerHead> outbox_;
  // Of the reading thread.
  uint64_t sequence_ = 0;
  bool ends_ = false;                                           // the client has ended the session
  uint64_t waits_ = 0;                                          // what the last frame waits for
  std::vector<std::byte> commands_;                             // of the last frame
  size_t put_ = 0;                                              // bytes of commands_ that are in the ring
  size_t missing_ = 0;                                          // ring space that the next command lacks
  std::array<std::atomic<uint64_t>, wire::kMaxQueues> last_{};  // last command of each queue in the ring
  std::atomic<uint32_t> queues_in_use_{1};                      // upper bound
  std::atomic<bool> stuck_{false};                              // some commands did not fit into the ring
  Mutex mutex_;
  CondVar work_;  // work for the writer: asked_, stuck_ or gone_ changed
  // What the client waits for and was not told of, as in ControlPage::client_waits. kAnyProgress means the
  // end of everything that it has sent.
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::deque<Awaited>, wire::kMaxQueues> awaited_ ABSL_GUARDED_BY(mutex_);
  uint64_t awaited_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // staging that awaited downloads use
  std::array<QueueSeen, wire::kMaxQueues> queues_;      // last values sent; of the writing thread
  Clock::time_point sent_;                              // time of the last frame
  MemorySeen memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::remote
