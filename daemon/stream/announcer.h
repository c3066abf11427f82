// Decides when the completion of a device session's commands is reported to the client. REQUIRES: the lane's
// thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/stream/queue_table.h"
#include "proto/transport/transport.h"

namespace xpud::stream {

class Announcer {
 public:
  // `busy_queues`: see Completion::Context. `synchronous`: whether a fence costs the device nothing.
  Announcer(QueueTable& queues, transport::ServerTransport& transport, const uint64_t& busy_queues,
            bool synchronous);

  // A command of the queue was submitted.
  void Submitted(uint32_t queue, uint64_t now_ns) {
    if (dirty_ == 0) dirty_since_ns_ = now_ns;
    dirty_ |= uint64_t{1} << queue;
    ++commands_;
  }
  // The client waits for progress.
  void ClientWaits() { client_waits_ = true; }
  // The ring was empty, so the client waits for what is unannounced, or for nothing.
  void SawNoCommands() { client_waits_ = client_waits_ && dirty_ != 0; }
  bool client_waits() const { return client_waits_; }
  // Whether a fence is due. `more`: whether there are commands to run.
  bool IsDue(uint64_t now_ns, bool more) const {
    return commands_ >= max_commands_ || now_ns >= dirty_since_ns_ + max_ns_ || (client_waits_ && !more);
  }
  // Appends fences to all queues with commands since their last one, and wakes the client.
  absl::Status Announce();

  bool has_unannounced() const { return dirty_ != 0; }
  // Whether the device works for the session, or commands have no fence yet.
  bool IsUnderWay() const { return (dirty_ | busy_queues_) != 0; }

 private:
  QueueTable& queues_;
  transport::ServerTransport& transport_;
  const uint64_t& busy_queues_;
  const uint64_t max_commands_, max_ns_;
  uint64_t dirty_ = 0;  // bit q: has commands after its last fence
  uint64_t dirty_since_ns_ = 0, commands_ = 0;
  bool client_waits_ = false;  // since the last fences
};

}  // namespace xpud::stream
