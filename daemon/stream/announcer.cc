#include "daemon/stream/announcer.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace xpud::stream {
namespace {

// A fence costs an asynchronous device as much as a small kernel. If nothing waits for a fence, one is placed
// after this many commands or this long: without fences, a busy device looks like one that hangs.
constexpr uint64_t kMaxCommands = 128;
constexpr uint64_t kMaxNs = 100'000;

}  // namespace

Announcer::Announcer(QueueTable& queues, transport::ServerTransport& transport, const uint64_t& busy_queues,
                     bool synchronous)
    : queues_(queues),
      transport_(transport),
      busy_queues_(busy_queues),
      max_commands_(synchronous ? 0 : kMaxCommands),
      max_ns_(synchronous ? 0 : kMaxNs) {}

absl::Status Announcer::Announce() {
  commands_ = 0;
  client_waits_ = false;
  absl::Status status;
  queues_.ForEach(std::exchange(dirty_, 0), [&](Queue& queue) {
    if (status.ok()) status = queue.completion->Fence();
  });
  RETURN_IF_ERROR(status);
  transport_.WakeClient();
  return absl::OkStatus();
}

}  // namespace xpud::stream
