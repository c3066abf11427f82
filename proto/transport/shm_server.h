// The daemon's end of a session on one device, over shared memory. The client can write to the ring and to
// staging at any time, so the daemon copies each byte once and uses the copy. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "proto/base/mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/layout.h"
#include "proto/transport/requests.h"
#include "proto/transport/transport.h"

namespace xpud::transport {

class ShmServer final : public ServerTransport {
 public:
  // Creates the shared memory. `fds` receives the descriptors to send to the client.
  static absl::StatusOr<std::unique_ptr<ShmServer>> Create(DeviceFds& fds);
  // Empties the ring, staging and the completion page but for its first 4 KiB: the client may keep its
  // descriptors.
  ~ShmServer() override;

  absl::StatusOr<std::span<const std::byte>> Receive() override;
  void WantPublishTimes(bool want) override;
  std::optional<uint64_t> PublishedNs(size_t offset) override;
  uint64_t TakeWaitRequest() override {
    const uint32_t attention = control().attention.load(std::memory_order_acquire);
    if (std::exchange(attention_, attention) == attention) [[likely]]
      return 0;
    const uint64_t asks = control().asks.exchange(0, std::memory_order_relaxed);
    return asks == 0 ? kAnyProgress : asks;  // 0: already taken together with an earlier request
  }
  uint64_t* CompletedWord(uint32_t queue) override;
  uint64_t* TimestampWord(uint32_t slot) override;
  void RaiseError(uint32_t queue, uint64_t sequence, const absl::Status& error) override;
  uint32_t Errors(uint32_t queue) const override;
  void SetAllocatedBytes(uint64_t bytes) override;
  std::atomic<uint64_t>* CreditWord() override { return &completion().memory.credit; }
  const std::atomic<uint64_t>* ClaimWord() override { return &control().claimed; }
  void AnswerReserve(uint64_t sequence, const std::optional<MemoryShortage>& refusal) override;
  SharedBytes staging() override { return {{staging_.data(), staging_.size()}, staging_fd_.get()}; }
  SharedBytes completion_memory() override {
    return {{completion_mapping_.data(), completion_mapping_.size()}, completion_fd_.get()};
  }
  void WakeClient() override;
  void SayAsleep() override;
  void BarrierBeforeSleep() override;
  bool HasCommands() override;
  void Awake() override;
  int doorbell() const override { return doorbell_.get(); }
  void Close(std::string_view reason, ClosedWord word) override;

 private:
  static constexpr size_t kBatchBytes = wire::kMaxCommandBytes;

  // Commands from position `begin` to `end` were published at `ns`.
  struct Published {
    uint64_t begin, end, ns;
  };

  ShmServer() = default;
  void TakePublishTimes();
  absl::StatusOr<uint64_t> ReadTail() const;
  absl::StatusOr<size_t> WholeCommands(size_t available) const;
  ControlPage& control() const { return *reinterpret_cast<ControlPage*>(control_mapping_.data()); }
  CompletionPage& completion() const {
    return *reinterpret_cast<CompletionPage*>(completion_mapping_.data());
  }

  UniqueFd doorbell_, ring_fd_, staging_fd_, completion_fd_;
  Mapping control_mapping_, ring_, completion_mapping_, staging_;
  uint64_t head_ = 0;
  uint32_t attention_ = 0;  // last value read
  bool wants_times_ = false;
  uint64_t batch_begin_ = 0;              // position of batch_
  uint64_t times_ = 0;                    // of PublishTimes that were read
  uint64_t timed_tail_ = 0;               // of the last one of them
  uint64_t earliest_ns_ = 0;              // what is told next is no earlier
  std::deque<Published> published_ = {};  // in the ring or in batch_
  bool news_ = false;                     // an error or an answer was stored since the client was last woken
  bool light_wake_ = false;               // a client that goes to sleep issues the barrier
  const std::unique_ptr<std::byte[]> batch_ = std::make_unique_for_overwrite<std::byte[]>(kBatchBytes);
};

}  // namespace xpud::transport
