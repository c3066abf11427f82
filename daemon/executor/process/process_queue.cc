#include "daemon/executor/process/process_queue.h"

#include <algorithm>
#include <cstring>

namespace xpud::executor::process {
namespace {

constexpr char kLostWork[] =
    "the device's executor was lost while memory was changed in place; some computed values are lost: "
    "compute them again";

uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Calls `visit` with each message of a command.
template <typename Visit>
void ForEachMessage(std::span<const std::byte> messages, Visit visit) {
  while (!messages.empty()) {
    Message message;
    std::memcpy(&message, messages.data(), sizeof(message));
    visit(message);
    messages = messages.subspan(message.bytes);
  }
}

}  // namespace

ProcessQueue::ProcessQueue(QueueHome& home, QueueSlots& slots, uint32_t slot, uint64_t owner,
                           PriorityClass priority)
    : home_(&home),
      next_home_(&home),
      slots_(slots),
      slot_(slot),
      owner_(owner),
      priority_(priority),
      created_priority_(priority),
      ring_(home.rings.plan().RingOf(priority, slot)),
      appended_(slots[slot].appended) {
  slots_[slot_] = {this, owner, appended_, &home.rings};
  home.rings.DropReport(ring_, slot);
}

ProcessQueue::~ProcessQueue() {
  slots_[slot_] = {nullptr, 0, appended_, nullptr};
  SendDestruction();
}

// ---- where it is

bool ProcessQueue::IsPlaced() const { return home_ == next_home_ && created_priority_ == priority_; }

void ProcessQueue::SetPriority(PriorityClass priority) {
  priority_ = priority;
  Settle();
}

void ProcessQueue::Move(QueueHome& home) {
  next_home_ = &home;
  Settle();
}

void ProcessQueue::MoveAfterLoss(QueueHome& home) {
  ForEachKernel([&](uint32_t kernel) { home.kernels.Add(home_->kernels[kernel]); });
  home_ = next_home_ = &home;
  slots_[slot_].rings = &home.rings;
  created_priority_ = priority_;
  ring_ = home.rings.plan().RingOf(priority_, slot_);
  home.rings.DropReport(ring_, slot_);
  moves_ = held_ = false;
  started_ = 0;
  SendRest();
}

void ProcessQueue::Settle() {
  moves_ = !IsPlaced();
  if (!moves_ || held_ || !log_.empty()) return;
  KeepReport();
  SendDestruction();
  created_ = moves_ = false;
  home_ = next_home_;
  slots_[slot_].rings = &home_->rings;
  created_priority_ = priority_;
  ring_ = home_->rings.plan().RingOf(priority_, slot_);
  home_->rings.DropReport(ring_, slot_);
  SendCreation();  // if the ring is full, it is sent with the first command
}

// ---- its work

absl::Status ProcessQueue::Append(std::span<const MemoryUse> uses, uint64_t mark) {
  if (log_.empty()) last_progress_ = Clock::now();
  log_.Append(scratch_.bytes(), uses, mark);
  scratch_.Clear();
  SendRest();
  return absl::OkStatus();
}

absl::Status ProcessQueue::Launch(const kernels::LaunchList& launches, std::span<const MemoryUse> uses) {
  const uint64_t launch_ns = launches.ideal_ns() / std::max<size_t>(launches.size(), 1);
  had_long_ |= launch_ns >= kLongLaunchNs;
  for (size_t i = 0; i < launches.size(); ++i) {
    const kernels::Launch& launch = launches[i];
    const auto values = launch.argument_bytes();
    const auto offsets = std::as_bytes(launch.argument_offsets());
    Message& message = Add(MessageKind::kLaunch, values.size() + 1 + offsets.size());
    message.kernel = home_->kernels.Add(launch.kernel());
    std::copy(launch.groups().begin(), launch.groups().end(), message.launch.groups);
    std::copy(launch.group_size.begin(), launch.group_size.end(), message.launch.group_size);
    message.launch.argument_bytes =
        static_cast<uint32_t>((values.size() + 1) / 2 * 2);  // keeps the offsets aligned
    message.launch.argument_count = static_cast<uint32_t>(launch.argument_count());
    message.launch.ideal_ns = launch_ns;
    std::byte* const payload = PayloadOf(message);
    std::copy(values.begin(), values.end(), payload);
    std::copy(offsets.begin(), offsets.end(), payload + message.launch.argument_bytes);
  }
  if (launches.size() == 0) return absl::OkStatus();
  return Append(uses);
}

absl::Status ProcessQueue::Copy(void* target, const void* source, uint64_t bytes) {
  Add(MessageKind::kCopy).memory = {AddressOf(target), AddressOf(source), bytes};
  const MemoryUse uses[] = {{AddressOf(source), bytes, MemoryUse::Kind::kRead},
                            {AddressOf(target), bytes, MemoryUse::Kind::kWrite}};
  return Append(uses);
}

absl::Status ProcessQueue::Upload(void* target, std::span<const std::byte> source) {
  scratch_.Add(MessageKind::kUpload, slot_, source).memory = {AddressOf(target), 0, source.size()};
  ++appended_;
  const MemoryUse uses[] = {{AddressOf(target), source.size(), MemoryUse::Kind::kWrite}};
  return Append(uses);
}

absl::Status ProcessQueue::WriteValue(uint64_t* word, uint64_t value) {
  Add(MessageKind::kWriteValue).write = {AddressOf(word), value};
  const absl::Status status = Append({}, value);
  home_->rings.Wake(ring_);
  return status;
}

absl::Status ProcessQueue::WriteTimestamp(uint64_t* word) {
  Add(MessageKind::kWriteTimestamp).write = {AddressOf(word), 0};
  return Append({});
}

bool ProcessQueue::times_work() const { return home_->rings.tracing(); }

bool ProcessQueue::ready() const {
  return !held_ && !moves_ && sent_ == log_.size() && home_->rings.HasRoom(ring_);
}

void ProcessQueue::Completed(uint64_t value) {
  const size_t before = log_.size();
  log_.Complete(value, [&](std::span<const std::byte> messages) {
    ForEachMessage(messages, [&](const Message& message) {
      if (message.kind == MessageKind::kLaunch) home_->kernels.CountRun(message.kernel);
    });
  });
  const size_t done = before - log_.size();
  sent_ -= std::min(sent_, done);
  started_ -= std::min(started_, done);
  last_progress_ = Clock::now();
  if (moves_) Settle();
}

bool ProcessQueue::HasTrouble() const { return !trouble_.error.ok() || home_->rings.HasReport(ring_, slot_); }

DeviceQueue::Trouble ProcessQueue::TakeTrouble() {
  KeepReport();
  return std::exchange(trouble_, {});
}

void ProcessQueue::KeepReport() {
  const absl::Status reported = home_->rings.TakeReport(ring_, slot_);
  if (reported.ok()) return;
  if (trouble_.error.ok()) trouble_.error = reported;
  // The failed command is unknown, so everything that unfinished commands write may be lost.
  log_.AddWritten(trouble_.spoilt);
}

bool ProcessQueue::SendCreation() {
  if (created_ || !home_->rings.online()) return created_;
  uint64_t first = appended_;
  log_.ForEachFrom(0, [&](CommandLog::Command&, std::span<const std::byte> messages) {
    ForEachMessage(messages, [&](const Message& message) { first -= IsWork(message.kind) ? 1 : 0; });
    return true;
  });
  MessageBuffer creation;
  creation.Add(MessageKind::kCreateQueue, slot_).create = {first, created_priority_};
  return created_ = home_->rings.Send(ring_, creation.bytes());
}

void ProcessQueue::SendDestruction() {
  if (!created_ || !home_->rings.online()) return;
  MessageBuffer destruction;
  destruction.Add(MessageKind::kDestroyQueue, slot_);
  home_->rings.Send(ring_, destruction.bytes());
}

bool ProcessQueue::Send(CommandLog::Command& command, std::span<const std::byte> messages) {
  bool loaded = true;
  ForEachMessage(messages, [&](const Message& message) {
    if (message.kind == MessageKind::kLaunch) loaded = loaded && home_->kernels.Load(ring_, message.kernel);
  });
  if (!loaded) return false;
  const uint64_t position = home_->rings.position(ring_);
  if (!home_->rings.Send(ring_, messages)) return false;
  command.position = position;
  return true;
}

bool ProcessQueue::SendUpTo(size_t count) {
  if (!home_->rings.online() || !SendCreation()) return false;
  if (sent_ >= count) return true;
  log_.ForEachFrom(sent_, [&](CommandLog::Command& command, std::span<const std::byte> messages) {
    if (sent_ == count || !Send(command, messages)) return false;
    ++sent_;
    return true;
  });
  return sent_ == count;
}

void ProcessQueue::Rewind(uint64_t taken) {
  // Completed commands must not run again: their owner may have acted on the results.
  if (done_ != nullptr) Completed(std::atomic_ref<const uint64_t>(*done_).load(std::memory_order_acquire));
  CommandLog::Damage damage = log_.Rewind(taken);
  sent_ = 0;
  created_ = false;
  held_ = true;
  started_ = damage.started;
  last_progress_ = Clock::now();
  if (damage.spoilt.empty()) return;
  if (trouble_.error.ok()) trouble_.error = absl::UnavailableError(kLostWork);
  trouble_.spoilt.insert(trouble_.spoilt.end(), damage.spoilt.begin(), damage.spoilt.end());
}

void ProcessQueue::Forget() {
  log_ = {};
  sent_ = started_ = 0;
  held_ = lost_ = true;
}

bool ProcessQueue::HasUnreachedMark(uint64_t taken) {
  for (size_t i = 0; i < sent_; ++i) {
    if (log_[i].mark != 0) return log_[i].position < taken;
  }
  return false;
}

bool ProcessQueue::Holds(uint64_t position) {
  for (size_t i = 0; i < sent_; ++i) {
    const CommandLog::Command& command = log_[i];
    if (command.position <= position && position < command.position + command.bytes) return true;
  }
  return false;
}

void ProcessQueue::ForEachKernel(absl::FunctionRef<void(uint32_t)> visit) {
  log_.ForEachFrom(0, [&](CommandLog::Command&, std::span<const std::byte> messages) {
    ForEachMessage(messages, [&](const Message& message) {
      if (message.kind == MessageKind::kLaunch) visit(message.kernel);
    });
    return true;
  });
}

uint64_t ProcessQueue::MinCompletedRuns() {
  uint64_t least = UINT64_MAX;
  size_t i = 0;
  log_.ForEachFrom(0, [&](CommandLog::Command&, std::span<const std::byte> messages) {
    ForEachMessage(messages, [&](const Message& message) {
      if (message.kind == MessageKind::kLaunch) least = std::min(least, home_->kernels.runs(message.kernel));
    });
    return ++i < started_;
  });
  return least;
}

}  // namespace xpud::executor::process
