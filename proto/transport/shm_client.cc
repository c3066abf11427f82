#include "proto/transport/shm_client.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/daemon_gone.h"
#include "proto/base/status_macros.h"
#include "proto/transport/barrier.h"
#include "proto/transport/futex.h"
#include "proto/transport/handshake.h"

namespace xpud::transport {
namespace {

constexpr size_t kBatchBytes = wire::kMaxCommandBytes;
constexpr size_t kPrefetchBytes = 512;  // prefetched for writing, ahead of the tail
// How often a sleeping thread checks for interrupts.
constexpr auto kInterruptPeriod = std::chrono::milliseconds(50);
// Pauses between two polls of a spinning thread. Each poll takes the cache lines that the daemon writes, so a
// thread that listens for any progress polls less often than one that waits for a command.
constexpr int kRelaxes = 1, kListenersRelaxes = 8;

// Requests ownership of the cache line at `address`; the daemon has read it in the last lap of the ring.
void PrefetchForWrite(const std::byte* address) { asm volatile("prefetchw %0" : : "m"(*address)); }

}  // namespace

absl::StatusOr<std::unique_ptr<ShmClient>> ShmClient::Create(std::shared_ptr<const SessionSocket> socket,
                                                             DeviceFds fds, size_t staging_bytes,
                                                             Waits waits) {
  std::unique_ptr<ShmClient> client(new ShmClient(waits));
  client->socket_ = std::move(socket);
  client->doorbell_ = std::move(fds.doorbell);
  ASSIGN_OR_RETURN(client->control_mapping_, Mapping::Map(fds.ring, kPageBytes, Access::kReadWrite));
  ASSIGN_OR_RETURN(client->ring_, Mapping::MapMirrored(fds.ring, kRingBytes, Access::kReadWrite, kPageBytes));
  ASSIGN_OR_RETURN(client->completion_mapping_,
                   Mapping::Map(fds.completion, sizeof(CompletionPage), Access::kReadOnly));
  ASSIGN_OR_RETURN(client->staging_, Mapping::Map(fds.staging, staging_bytes, Access::kReadWrite));
  client->light_publish_ = AllowRemoteBarriers();
  client->batch_.resize(kBatchBytes);
  return client;
}

std::byte* ShmClient::Reserve(size_t bytes) {
  if (pending_ + bytes > kBatchBytes) Publish();
  if (tail_ + pending_ + bytes - head_ > kRingBytes) [[unlikely]] {
    head_ = completion().head.load(std::memory_order_acquire);
    if (tail_ + pending_ + bytes - head_ > kRingBytes) {
      Publish();  // a caller that waits for space needs committed commands to be visible
      return nullptr;
    }
  }
  return batch_.data() + pending_;
}

void ShmClient::Publish() {
  if (pending_ == 0) return;
  std::memcpy(ring_.data() + tail_ % kRingBytes, batch_.data(), pending_);
  tail_ += pending_;
  pending_ = 0;
  if (completion().wants_publish_times.load(std::memory_order_relaxed) != 0) [[unlikely]]
    NotePublishTime();
  // The tail must be visible before daemon_sleeps is read: by this sequentially consistent store, or by the
  // barrier that the daemon issues before it sleeps.
  control().tail.store(tail_, light_publish_ ? std::memory_order_release : std::memory_order_seq_cst);
  if (completion().daemon_sleeps.load(std::memory_order_seq_cst) != 0) eventfd_write(doorbell_.get(), 1);
  for (size_t ahead = 0; ahead < kPrefetchBytes; ahead += 64)
    PrefetchForWrite(ring_.data() + tail_ % kRingBytes + ahead);
}

void ShmClient::NotePublishTime() {
  PublishTimes& published = control().published;
  PublishTimes::Time& time = published.times[times_ % PublishTimes::kKept];
  time.tail.store(tail_, std::memory_order_relaxed);
  time.ns.store(NowNs(), std::memory_order_relaxed);
  published.count.store(++times_, std::memory_order_release);
}

void ShmClient::RequestAnswer(uint64_t what) {
  AddWait(control().asks, what);
  control().attention.fetch_add(1, std::memory_order_seq_cst);
  // A sleeping daemon has no work in flight and needs no request. A relay must still forward the request.
  if (for_relay_ && completion().daemon_sleeps.load(std::memory_order_seq_cst) != 0)
    eventfd_write(doorbell_.get(), 1);
}

void ShmClient::NotePolling() {
  if (is_quiet_.load(std::memory_order_relaxed) && is_quiet_.exchange(false)) RequestAnswer(kAnyProgress);
}

uint64_t ShmClient::Completed(uint32_t queue) const {
  return completion().queues[queue].completed.load(std::memory_order_acquire);
}

uint32_t ShmClient::Errors(uint32_t queue) const {
  return completion().queues[queue].errors.load(std::memory_order_acquire);
}

absl::Status ShmClient::LastError(uint32_t queue) const {
  const QueueStatus& status = completion().queues[queue];
  const std::string message = GetText(status.message);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code), message);
}

uint64_t ShmClient::Timestamp(uint32_t slot) const {
  return completion().timestamps[slot].load(std::memory_order_acquire);
}

uint64_t ShmClient::AllocatedBytes() const {
  return completion().memory.allocated.load(std::memory_order_relaxed);
}

bool ShmClient::Claim(uint64_t bytes) {
  // The claim must be visible before the credit is read, as for the tail and daemon_sleeps.
  control().claimed.store(bytes, light_publish_ ? std::memory_order_release : std::memory_order_seq_cst);
  return bytes <= Credit();
}

std::optional<MemoryShortage> ShmClient::Refusal() const {
  const MemoryStatus& status = completion().memory;
  if (status.refused.load(std::memory_order_relaxed) == 0) return std::nullopt;
  return MemoryShortage{MemoryShortage::Scope{status.scope.load(std::memory_order_relaxed)},
                        status.limit.load(std::memory_order_relaxed),
                        status.used.load(std::memory_order_relaxed)};
}

bool ShmClient::SpinUntil(absl::FunctionRef<bool()> done, int relaxes) {
  const auto start = Clock::now();
  do {
    for (int i = 0; i < 64; i += relaxes) {
      if (done()) return true;
      for (int j = 0; j < relaxes; ++j) CpuRelax();
    }
  } while (spin_.Continues(start, Clock::now()));
  return false;
}

absl::Status ShmClient::Wait(absl::FunctionRef<bool()> done, const std::function<absl::Status()>& interrupt) {
  if (done()) return absl::OkStatus();
  RequestAnswer(kAnyProgress);
  return SpinAndSleepUntil(done, interrupt, {}, kRelaxes);
}

absl::Status ShmClient::Await(const Milestone& milestone, const std::function<absl::Status()>& interrupt) {
  const auto done = [&] { return Completed(milestone.queue) >= milestone.sequence; };
  if (done()) return absl::OkStatus();
  RequestAnswer(WaitsFor(milestone));
  is_quiet_.store(for_relay_, std::memory_order_relaxed);
  return SpinAndSleepUntil(done, interrupt, {kForever, milestone}, kRelaxes);
}

absl::Status ShmClient::Listen(absl::FunctionRef<bool()> done, const std::function<absl::Status()>& interrupt,
                               const Sleep& sleep) {
  return SpinAndSleepUntil(done, interrupt, sleep, kListenersRelaxes);
}

absl::Status ShmClient::SpinAndSleepUntil(absl::FunctionRef<bool()> done,
                                          const std::function<absl::Status()>& interrupt, const Sleep& sleep,
                                          int relaxes) {
  if (done()) return absl::OkStatus();
  return SpinUntil(done, relaxes) ? absl::OkStatus() : SleepUntil(done, interrupt, sleep);
}

absl::Status ShmClient::SleepUntil(absl::FunctionRef<bool()> done,
                                   const std::function<absl::Status()>& interrupt, const Sleep& sleep) {
  uint64_t what = sleep.milestone ? WaitsFor(*sleep.milestone) : kAnyProgress;
  auto next_check = Clock::now() + kInterruptPeriod;
  while (true) {
    const uint32_t seen = completion().wake.load(std::memory_order_seq_cst);
    AddWait(control().client_waits, what);
    IssueRemoteBarrier();  // orders our store of client_waits before our check; the daemon stores progress,
                           // then reads client_waits
    if (done()) return absl::OkStatus();
    const auto rest = sleep.until - Clock::now();
    if (rest.count() <= 0) {
      control().client_waits.compare_exchange_strong(what, 0, std::memory_order_seq_cst);
      return absl::OkStatus();
    }
    FutexWait(completion().wake, seen, std::min<Clock::duration>(rest, kInterruptPeriod));
    if (done()) return absl::OkStatus();
    if (Clock::now() < next_check) continue;
    next_check = Clock::now() + kInterruptPeriod;
    RETURN_IF_ERROR(status());
    if (interrupt) RETURN_IF_ERROR(interrupt());
  }
}

// If another thread waits for something else, any progress must wake both.
void ShmClient::AddWait(std::atomic<uint64_t>& waits, uint64_t what) {
  uint64_t before = 0;
  if (!waits.compare_exchange_strong(before, what, std::memory_order_seq_cst) && before != what)
    waits.store(CombineWaits(before, what), std::memory_order_seq_cst);
}

absl::Status ShmClient::status() const {
  RETURN_IF_ERROR(CheckOpen());
  return socket_->status();
}

absl::Status ShmClient::CheckOpen() const {
  std::atomic_thread_fence(std::memory_order_acquire);  // after the copies from staging
  const uint32_t closed = completion().closed.load(std::memory_order_acquire);
  if (closed == kSessionOpen) [[likely]]
    return absl::OkStatus();
  const std::string text =
      absl::StrCat("the xpud daemon closed this session: ", GetText(completion().reason));
  return closed == kDaemonEnded ? DaemonGone(text) : absl::UnavailableError(text);
}

}  // namespace xpud::transport
