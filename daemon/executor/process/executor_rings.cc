#include "daemon/executor/process/executor_rings.h"

#include "proto/transport/handshake.h"

namespace xpud::executor::process {
namespace {

// Small, so that scheduling decisions take effect soon, but enough to keep the executor busy.
constexpr size_t kMaxBacklog = 96 << 10;

}  // namespace

void ExecutorRings::Connect(std::span<PrivateRing> rings) {
  rings_ = rings;
  online_ = true;
  if (traces_) times().Want(true);
}

void ExecutorRings::Disconnect() {
  rings_ = {};
  online_ = false;
}

bool ExecutorRings::HasRoom(size_t ring) const { return online_ && rings_[ring].BacklogIsBelow(kMaxBacklog); }

void ExecutorRings::Wake(size_t ring) {
  if (online_) rings_[ring].Wake();
}

std::optional<std::string> ExecutorRings::Fault() const {
  for (const PrivateRing& ring : rings_) {
    const RingControl& control = ring.control();
    if (control.state.load(std::memory_order_acquire) == static_cast<uint32_t>(ExecutorState::kDeviceLost))
      return transport::GetText(control.reason);
  }
  return std::nullopt;
}

bool ExecutorRings::HasReport(size_t ring, uint32_t slot) const {
  return !rings_.empty() && Report(ring, slot).raised.load(std::memory_order_acquire) != 0;
}

absl::Status ExecutorRings::TakeReport(size_t ring, uint32_t slot) {
  if (!HasReport(ring, slot)) return absl::OkStatus();
  QueueReport& report = Report(ring, slot);
  absl::Status status(static_cast<absl::StatusCode>(report.code), transport::GetText(report.text));
  report.raised.store(0, std::memory_order_release);
  return status.ok() ? absl::InternalError("an executor's report without an error") : status;
}

void ExecutorRings::DropReport(size_t ring, uint32_t slot) {
  if (online_) Report(ring, slot).raised.store(0);
}

uint32_t ExecutorRings::Trace(bool on) {
  traces_ = on;
  return online_ ? times().Want(on) : 0;
}

uint64_t ExecutorRings::replayed_launches() const {
  uint64_t sum = 0;
  for (const PrivateRing& ring : rings_) sum += ring.control().replayed.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace xpud::executor::process
