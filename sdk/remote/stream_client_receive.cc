// The receiving part of StreamClient: writes what the gateway sends to the pages that the library reads.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "proto/transport/barrier.h"
#include "sdk/remote/stream_client.h"

namespace xpud::remote {
namespace {

void SetStoredWord(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

}  // namespace

bool StreamClient::HasArrived(const grpc::ByteBuffer* message) {
  if (message != nullptr && Take(*message)) return true;
  down_.store(true);
  WakeSender();
  return false;
}

// Returns false if the gateway broke the protocol.
bool StreamClient::Take(const grpc::ByteBuffer& message) {
  const bool was_full = outbox_.IsFull();
  ServerFrame frame;
  if (!Parse(message, frame) || !outbox_.Acknowledge(frame.head.received()) ||
      !inbox_.Take(frame.head.number())) {
    link_->Cancel();
    return false;
  }
  Apply(frame);
  if (was_full || inbox_.WantsAcknowledgement()) WakeSender();
  return true;
}

// Lowers credit as the daemon's Ledger does: what the library claimed before it sees the lower credit stays.
void StreamClient::ApplyMemory(const v1::MemoryState& memory) {
  std::atomic<uint64_t>& credit = *server_->CreditWord();
  const uint64_t before = credit.exchange(memory.credit(), std::memory_order_seq_cst);
  server_->SetAllocatedBytes(memory.allocated());
  std::optional<MemoryShortage> refusal;
  if (memory.has_refusal())
    refusal = MemoryShortage{MemoryShortage::Scope{memory.refusal().scope()}, memory.refusal().limit(),
                             memory.refusal().used()};
  server_->AnswerReserve(memory.answered(), refusal);
  if (!memory.gives_less()) return;
  transport::IssueRemoteBarrier();
  const uint64_t claimed = server_->ClaimWord()->load(std::memory_order_seq_cst);
  const uint64_t kept = std::max(memory.credit(), std::min(claimed, before));
  credit.store(kept, std::memory_order_seq_cst);
  v1::CreditKept answer;
  answer.set_credit(kept);
  answer.set_number(memory.number());
  {
    MutexLock lock(mutex_);
    kept_.push_back(std::move(answer));
  }
  WakeSender();
}

void StreamClient::Apply(const ServerFrame& frame) {
  const std::span<std::byte> staging = server_->staging().bytes;
  const v1::ServerHead& head = frame.head;
  SliceReader payload(frame.payload);
  for (const v1::StagingPart& part : head.staging()) {
    if (part.offset() <= staging.size() && part.bytes() <= staging.size() - part.offset())
      (void)payload.Read(staging.subspan(part.offset(), part.bytes()));
  }
  for (const v1::Timestamp& stamp : head.timestamps()) {
    if (stamp.slot() < wire::kMaxTimestamps)
      SetStoredWord(server_->TimestampWord(stamp.slot()), stamp.time_ns());
  }
  if (head.has_memory()) ApplyMemory(head.memory());
  for (const v1::QueueState& queue : head.queues()) {
    if (queue.queue() >= wire::kMaxQueues) continue;
    if (queue.has_error())
      server_->RaiseError(
          queue.queue(), 0,
          absl::Status(static_cast<absl::StatusCode>(queue.error().code()), queue.error().message()));
    SetStoredWord(server_->CompletedWord(queue.queue()), queue.completed());
  }
  if (!head.closed().empty())
    Close(head.closed(), head.daemon_ended() ? transport::kDaemonEnded : transport::kSessionClosed);
  server_->WakeClient();
}

}  // namespace xpud::remote
