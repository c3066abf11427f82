#include "proto/transport/shm_server.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"
#include "proto/transport/barrier.h"
#include "proto/transport/futex.h"
#include "proto/transport/handshake.h"
#include "proto/wire/decode.h"

namespace xpud::transport {
namespace {

absl::StatusOr<UniqueFd> Duplicate(const UniqueFd& fd) {
  UniqueFd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return DescriptorError("fcntl(F_DUPFD_CLOEXEC)");
  return copy;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmServer>> ShmServer::Create(DeviceFds& fds) {
  std::unique_ptr<ShmServer> server(new ShmServer);
  ASSIGN_OR_RETURN(fds.ring, CreateSealedMemfd("xpud-ring", kPageBytes + kRingBytes));
  ASSIGN_OR_RETURN(fds.staging, CreateSealedMemfd("xpud-staging", kStagingBytes));
  ASSIGN_OR_RETURN(UniqueFd completion, CreateSealedMemfd("xpud-completion", sizeof(CompletionPage)));
  ASSIGN_OR_RETURN(server->control_mapping_, Mapping::Map(fds.ring, kPageBytes, Access::kReadWrite));
  ASSIGN_OR_RETURN(server->ring_, Mapping::MapMirrored(fds.ring, kRingBytes, Access::kReadOnly, kPageBytes));
  ASSIGN_OR_RETURN(server->staging_, Mapping::Map(fds.staging, kStagingBytes, Access::kReadWrite));
  ASSIGN_OR_RETURN(server->completion_mapping_,
                   Mapping::Map(completion, sizeof(CompletionPage), Access::kReadWrite));
  // The client gets a descriptor that cannot be mapped writable.
  fds.completion.Reset(open(absl::StrCat("/proc/self/fd/", completion.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fds.completion.valid()) return DescriptorError("reopening the completion page read-only");
  server->doorbell_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->doorbell_.valid()) return DescriptorError("eventfd");
  ASSIGN_OR_RETURN(fds.doorbell, Duplicate(server->doorbell_));
  ASSIGN_OR_RETURN(server->staging_fd_, Duplicate(fds.staging));
  ASSIGN_OR_RETURN(server->ring_fd_, Duplicate(fds.ring));
  server->completion_fd_ = std::move(completion);
  server->light_wake_ = AllowRemoteBarriers();
  return server;
}

ShmServer::~ShmServer() {
  if (!completion_fd_.valid()) return;
  // First: a client that copies from staging or reads completions looks afterwards whether the session is
  // open.
  if (completion().closed.load(std::memory_order_relaxed) == kSessionOpen)
    Close("the session has ended", kSessionClosed);
  EmptyMemfd(staging_fd_);
  EmptyMemfd(ring_fd_, kPageBytes);
  EmptyMemfd(completion_fd_, kPageBytes);  // the first page has `closed` and its reason
}

absl::StatusOr<uint64_t> ShmServer::ReadTail() const {
  const uint64_t tail = control().tail.load(std::memory_order_acquire);
  if (tail - head_ > kRingBytes || tail % 8 != 0) {
    return absl::InvalidArgumentError("the ring's tail is outside the ring");
  }
  return tail;
}

// Returns how many of the first `available` bytes of batch_ are complete commands.
absl::StatusOr<size_t> ShmServer::WholeCommands(size_t available) const {
  size_t whole = 0;
  while (available - whole >= sizeof(wire::CommandHeader)) {
    wire::CommandHeader header;
    RETURN_IF_ERROR(wire::DecodeHeader({batch_.get() + whole, available - whole}, header));
    if (header.bytes > available - whole) break;
    whole += header.bytes;
  }
  return whole;
}

absl::StatusOr<std::span<const std::byte>> ShmServer::Receive() {
  ASSIGN_OR_RETURN(const uint64_t tail, ReadTail());
  if (wants_times_) [[unlikely]]
    TakePublishTimes();
  const size_t available = std::min<uint64_t>(tail - head_, kBatchBytes);
  if (available == 0) return std::span<const std::byte>();
  std::memcpy(batch_.get(), ring_.data() + head_ % kRingBytes, available);
  ASSIGN_OR_RETURN(const size_t whole, WholeCommands(available));
  if (whole == 0) return absl::InvalidArgumentError("a command was published before it was whole");
  batch_begin_ = head_;
  head_ += whole;
  completion().head.store(head_, std::memory_order_release);
  return std::span<const std::byte>(batch_.get(), whole);
}

void ShmServer::WantPublishTimes(bool want) {
  if (std::exchange(wants_times_, want) == want) return;
  completion().wants_publish_times.store(want, std::memory_order_relaxed);
  published_.clear();
  times_ = UINT64_MAX;  // so that the first one does not follow another
  if (want) earliest_ns_ = NowNs();
}

void ShmServer::TakePublishTimes() {
  const PublishTimes& page = control().published;
  const uint64_t count = page.count.load(std::memory_order_acquire);
  const uint64_t oldest = count - std::min(count, PublishTimes::kKept);
  for (uint64_t number = std::max(oldest, times_ == UINT64_MAX ? 0 : times_); number < count; ++number) {
    const PublishTimes::Time& time = page.times[number % PublishTimes::kKept];
    const uint64_t tail = time.tail.load(std::memory_order_relaxed);
    const uint64_t ns = time.ns.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool overwritten = page.count.load(std::memory_order_relaxed) - number >= PublishTimes::kKept;
    const bool follows = number == times_ && !overwritten && tail > timed_tail_;
    if (follows && published_.size() < kRingBytes / sizeof(wire::CommandHeader))
      published_.push_back({timed_tail_, tail, ns});
    times_ = number + 1;
    timed_tail_ = tail;
  }
}

std::optional<uint64_t> ShmServer::PublishedNs(size_t offset) {
  const uint64_t position = batch_begin_ + offset;
  while (!published_.empty() && published_.front().end <= position) published_.pop_front();
  if (published_.empty() || position < published_.front().begin) return std::nullopt;
  earliest_ns_ = std::min(std::max(earliest_ns_, published_.front().ns), NowNs());
  return earliest_ns_;
}

uint64_t* ShmServer::CompletedWord(uint32_t queue) {
  return reinterpret_cast<uint64_t*>(&completion().queues[queue].completed);
}

uint64_t* ShmServer::TimestampWord(uint32_t slot) {
  return reinterpret_cast<uint64_t*>(&completion().timestamps[slot]);
}

void ShmServer::RaiseError(uint32_t queue, uint64_t sequence, const absl::Status& error) {
  QueueStatus& status = completion().queues[queue];
  status.error_code = static_cast<uint32_t>(error.code());
  status.error_sequence = sequence;
  SetText(status.message, std::string_view(error.message().data(), error.message().size()));
  status.errors.fetch_add(1, std::memory_order_release);
  news_ = true;
}

uint32_t ShmServer::Errors(uint32_t queue) const {
  return completion().queues[queue].errors.load(std::memory_order_relaxed);
}

void ShmServer::SetAllocatedBytes(uint64_t bytes) {
  completion().memory.allocated.store(bytes, std::memory_order_relaxed);
}

void ShmServer::AnswerReserve(uint64_t sequence, const std::optional<MemoryShortage>& refusal) {
  MemoryStatus& status = completion().memory;
  status.refused.store(refusal.has_value(), std::memory_order_relaxed);
  if (refusal) {
    status.scope.store(static_cast<uint32_t>(refusal->scope), std::memory_order_relaxed);
    status.limit.store(refusal->limit, std::memory_order_relaxed);
    status.used.store(refusal->used, std::memory_order_relaxed);
  }
  status.answered.store(sequence, std::memory_order_release);
  news_ = true;
}

void ShmServer::WakeClient() {
  // client_waits must be read after our progress is visible: ordered by the barrier that the client issues
  // before it sleeps, or by a sequentially consistent load.
  std::atomic<uint64_t>& waits = control().client_waits;
  const uint64_t what =
      light_wake_ ? waits.load(std::memory_order_seq_cst) : waits.fetch_or(0, std::memory_order_seq_cst);
  if (what == 0) return;
  const std::optional<Milestone> milestone = AwaitedMilestone(what);
  if (milestone && !news_ &&
      completion().queues[milestone->queue].completed.load(std::memory_order_relaxed) < milestone->sequence)
    return;
  news_ = false;
  waits.store(0, std::memory_order_seq_cst);
  completion().wake.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(completion().wake);
}

void ShmServer::SayAsleep() { completion().daemon_sleeps.store(1, std::memory_order_seq_cst); }

void ShmServer::BarrierBeforeSleep() { IssueRemoteBarrier(); }

bool ShmServer::HasCommands() { return control().tail.load(std::memory_order_seq_cst) != head_; }

void ShmServer::Awake() {
  completion().daemon_sleeps.store(0, std::memory_order_relaxed);
  eventfd_t rings;
  eventfd_read(doorbell_.get(), &rings);
}

void ShmServer::Close(std::string_view reason, ClosedWord word) {
  SetText(completion().reason, reason);
  completion().closed.store(word, std::memory_order_release);
  completion().wake.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(completion().wake);
}

}  // namespace xpud::transport
