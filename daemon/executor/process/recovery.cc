#include "daemon/executor/process/recovery.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "absl/strings/str_cat.h"
#include "daemon/executor/process/message_buffer.h"
#include "daemon/executor/process/process_queue.h"

namespace xpud::executor::process {
namespace {

constexpr auto kMaxProbe = std::chrono::seconds(10);

}  // namespace

void Recovery::Begin(const Loss& loss) {
  // The executor has ended, so its progress is final.
  queues_.ForEachOf(rings_, [&](ProcessQueue& queue) {
    queue.KeepReport();
    queue.Rewind(rings_.taken(queue.ring()));
  });
  loss_ = loss.text;
  const bool was_probed = std::exchange(probed_since_, std::nullopt).has_value();
  if (!loss.hung.empty())
    Suspect(loss.hung);
  else if (loss.from_outside)
    suspects_.clear();
  else if (was_probed)
    Blame(uint64_t{suspects_.front()}, loss_);  // only its work and that of cleared sessions was in flight
  else
    Suspect(OwnersOfStarted());
}

std::vector<uint64_t> Recovery::OwnersOfStarted() const {
  std::vector<uint64_t> owners;
  queues_.ForEachOf(rings_, [&](const ProcessQueue& queue) {
    if (queue.started() != 0 && std::ranges::find(owners, queue.owner()) == owners.end())
      owners.push_back(queue.owner());
  });
  return owners;
}

void Recovery::Suspect(std::vector<uint64_t> owners) {
  std::map<uint64_t, uint64_t> proven;
  for (const uint64_t owner : owners) {
    proven[owner] = UINT64_MAX;
    for (ProcessQueue* queue : queues_.Of(rings_, owner))
      proven[owner] = std::min(proven[owner], queue->MinCompletedRuns());
  }
  std::ranges::sort(owners, [&](uint64_t a, uint64_t b) { return proven[a] > proven[b]; });
  suspects_ = std::move(owners);
  if (suspects_.size() == 1) Blame(uint64_t{suspects_.front()}, loss_);
}

bool Recovery::IsSuspect(uint64_t owner) const {
  return std::ranges::find(suspects_, owner) != suspects_.end();
}

void Recovery::Blame(uint64_t owner, std::string reason) {
  for (ProcessQueue* queue : queues_.Of(rings_, owner)) queue->Forget();
  if (!suspects_.empty() && suspects_.front() == owner) probed_since_.reset();
  std::erase(suspects_, owner);
  if (std::ranges::find(verdicts_, owner, &Verdict::owner) == verdicts_.end())
    verdicts_.push_back({owner, std::move(reason)});
}

void Recovery::BlameSuspects(const std::string& reason) {
  while (!suspects_.empty()) Blame(uint64_t{suspects_.front()}, reason);
}

void Recovery::Rerun(ProcessQueue& queue) {
  queue.Release();
  queue.SendRest();
}

void Recovery::Resume() {
  queues_.ForEachOf(rings_, [&](ProcessQueue& queue) {
    if (!IsSuspect(queue.owner()) && memory_.IsComplete(queue.owner())) Rerun(queue);
  });
  for (size_t r = 0; r < rings_.count(); ++r) rings_.Wake(r);
}

void Recovery::FinishMemory(uint64_t owner, const absl::Status& given) {
  if (!given.ok()) {
    Blame(owner, absl::StrCat("the replacement executor cannot import its host memory: ", given.message()));
    return;
  }
  if (!rings_.online() || IsSuspect(owner)) return;
  for (ProcessQueue* queue : queues_.Of(rings_, owner)) {
    Rerun(*queue);
    rings_.Wake(queue->ring());
  }
}

// ---- suspects

void Recovery::Probe() {
  while (!suspects_.empty() && queues_.Of(rings_, suspects_.front()).empty()) ProbeNext();
  if (suspects_.empty()) return;
  if (!probed_since_ && !SendProbe()) return;
  if (!IsProbeDone()) return;
  spdlog::info("suspect_cleared device={} session={}", device_, suspects_.front());
  for (ProcessQueue* queue : queues_.Of(rings_, suspects_.front())) Rerun(*queue);
  ProbeNext();
}

// Sends the first suspect's work, and after it a probe in each of its queues. Returns whether all was sent.
bool Recovery::SendProbe() {
  const std::vector<ProcessQueue*> queues = queues_.Of(rings_, suspects_.front());
  if (!memory_.IsComplete(suspects_.front())) return false;
  for (ProcessQueue* queue : queues) {
    if (!queue->SendStarted()) return false;  // the ring is full
  }
  ++probe_;
  for (ProcessQueue* queue : queues) {
    MessageBuffer probe;
    probe.Add(MessageKind::kWriteValue, queue->slot()).write = {
        reinterpret_cast<uint64_t>(probes_->OnDevice(ProbeOf(*queue))), probe_};
    if (!rings_.Send(queue->ring(), probe.bytes())) return false;
    rings_.Wake(queue->ring());
  }
  probed_since_ = Clock::now();
  return true;
}

bool Recovery::IsProbeDone() const {
  return std::ranges::all_of(queues_.Of(rings_, suspects_.front()), [&](const ProcessQueue* queue) {
    return std::atomic_ref<uint64_t>(*ProbeOf(*queue)).load(std::memory_order_acquire) == probe_;
  });
}

uint64_t* Recovery::ProbeOf(const ProcessQueue& queue) const {
  return reinterpret_cast<uint64_t*>(probes_->address()) + queue.slot();
}

std::optional<uint64_t> Recovery::Overdue() const {
  if (!probed_since_ || Clock::now() - *probed_since_ <= kMaxProbe) return std::nullopt;
  return suspects_.front();
}

void Recovery::ProbeNext() {
  suspects_.erase(suspects_.begin());
  probed_since_.reset();
  if (suspects_.size() == 1 && !queues_.Of(rings_, suspects_.front()).empty()) {
    Blame(uint64_t{suspects_.front()},
          absl::StrCat(loss_, "; the work in flight of all other sessions was rerun without a fault"));
  }
}

}  // namespace xpud::executor::process
