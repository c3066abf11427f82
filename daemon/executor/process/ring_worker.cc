#include "daemon/executor/process/ring_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/executor/process/message_buffer.h"
#include "proto/base/status_macros.h"
#include "proto/transport/futex.h"

namespace xpud::executor::process {
namespace {

constexpr auto kCheck = std::chrono::microseconds(500);  // between two checks of busy queues
constexpr int kCheckMs = 1;                              // the same while asleep

// Increments a counter that only this thread writes.
void Count(std::atomic<uint64_t>& counter, uint64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

template <typename T>
T* Pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

RingWorker::RingWorker(LevelZeroDevice& device, PrivateRing& ring, Activity& activity, TimeKeeper& times,
                       uint32_t number)
    : device_(device), ring_(ring), activity_(activity), times_(times), number_(number) {}

absl::Status RingWorker::Run() {
  for (;;) {
    const Message* const message = ring_.Next();
    if (message == nullptr) {
      RETURN_IF_ERROR(Idle());
      continue;
    }
    idle_ = false;
    if (message->kind == MessageKind::kLaunch) {
      ASSIGN_OR_RETURN(const bool replayed, ReplayBatch());
      if (replayed) continue;
    }
    const uint32_t queue = message->queue;
    absl::Status status = Handle(*message);
    if (!status.ok()) {
      // Library calls report a lost device with codes of their own.
      if (!absl::IsUnavailable(status)) RETURN_IF_ERROR(CheckQueues());
      if (absl::IsUnavailable(status)) return status;
      Report(queue, status);
    }
    ring_.Take(message->bytes);
  }
}

absl::StatusOr<bool> RingWorker::ReplayBatch() {
  const uint64_t position = ring_.position();
  if (!device_.records() || position < single_until_) return false;
  if (times_.on() && times_.uses_clock()) return false;  // each launch has a time of its own
  const std::span<const std::byte> pending = ring_.Pending();
  const uint32_t number = reinterpret_cast<const Message*>(pending.data())->queue;
  Queue& queue = queues_[number];
  const LaunchBatch batch = CutBatch(pending);
  const Recording* recording = nullptr;
  if (batch.launches != 0 && queue.list != nullptr) {
    ASSIGN_OR_RETURN(recording, RecordingOf(pending.first(batch.bytes), queue));
  }
  if (recording == nullptr) {
    single_until_ = position + batch.bytes;
    return false;
  }
  // From here on, any of these launches may have run.
  ring_.Take(batch.bytes);
  Count(ring_.control().replayed, batch.launches);
  Begin(queue);
  const TimeKeeper::Appending appending(times_, number, queue.number, recording->counts);
  queue.number += batch.launches;
  absl::Status status = queue.list->Replay(recording->commands);
  if (absl::IsUnavailable(status)) return status;
  if (!status.ok()) Report(number, status);
  return true;
}

absl::StatusOr<const Recording*> RingWorker::RecordingOf(std::span<const std::byte> messages, Queue& queue) {
  Recording* const recording = recordings_.Find(messages);
  if (recording == nullptr || !recording->messages.empty()) return recording;
  if (OtherQueuesAreBusy(queue)) return nullptr;
  absl::Status recorded = Record(messages, *queue.list, *recording);
  if (recorded.ok()) return recording;
  if (absl::IsUnavailable(recorded)) return recorded;
  recordings_.Refuse(messages);  // appending the launches one by one reports the error
  return nullptr;
}

void RingWorker::Begin(Queue& queue) {
  queue.busy = true;
  if (!working_) activity_.Set(number_);
  working_ = true;
}

bool RingWorker::OtherQueuesAreBusy(const Queue& queue) {
  if (activity_.OthersThan(number_)) return true;
  return std::any_of(queues_.begin(), queues_.end(), [&](Queue& other) {
    if (&other == &queue || !other.busy) return false;
    other.busy = !other.list->Synchronize(0).ok();
    return other.busy;
  });
}

absl::Status RingWorker::Record(std::span<const std::byte> messages, LevelZeroQueue& queue,
                                Recording& recording) {
  RETURN_IF_ERROR(queue.BeginRecording());
  absl::Status launched;
  OperationCounts counts;
  for (std::span<const std::byte> rest = messages; launched.ok() && !rest.empty();) {
    const auto& message = *reinterpret_cast<const Message*>(rest.data());
    launched = Launch(message, queue);
    if (const auto count = queue.CountRecorded(); count.ok()) counts.push_back(*count);
    rest = rest.subspan(message.bytes);
  }
  auto recorded = queue.EndRecording();
  RETURN_IF_ERROR(launched);
  ASSIGN_OR_RETURN(recording.commands, std::move(recorded));
  recording.Keep(messages);
  if (counts.size() == recording.kernels.size())
    recording.counts = std::make_shared<const OperationCounts>(std::move(counts));
  return absl::OkStatus();
}

absl::Status RingWorker::Handle(const Message& message) {
  switch (message.kind) {
    case MessageKind::kCreateQueue:
      return CreateQueue(message);
    case MessageKind::kDestroyQueue:
      recordings_.Forget(message.queue);
      queues_[message.queue] = {};
      return absl::OkStatus();
    case MessageKind::kLoadModule:
      LoadModule(message);
      return absl::OkStatus();
    case MessageKind::kLoadKernel:
      return LoadKernel(message);
    case MessageKind::kUnloadKernel:
      UnloadKernel(message);
      return absl::OkStatus();
    default:
      break;
  }
  Queue& queue = queues_[message.queue];  // exists, because it is created first
  if (queue.list == nullptr) {
    if (message.kind == MessageKind::kWriteValue) return WriteAtOnce(message);
    ASSIGN_OR_RETURN(queue.list, device_.CreateList(queue.priority));
  }
  Begin(queue);
  if (message.kind == MessageKind::kWriteValue) return Announce(message, *queue.list);
  const TimeKeeper::Appending appending(times_, message.queue, queue.number++);
  switch (message.kind) {
    case MessageKind::kLaunch:
      return Launch(message, *queue.list);
    case MessageKind::kCopy:
      return queue.list->Copy(Pointer<void>(message.memory.target), Pointer<void>(message.memory.source),
                              message.memory.bytes);
    case MessageKind::kUpload:
      return queue.list->Upload(Pointer<void>(message.memory.target),
                                {PayloadOf(message), message.memory.bytes});
    case MessageKind::kWriteTimestamp:
      return queue.list->WriteTimestamp(Pointer<uint64_t>(message.write.word));
    default:
      return absl::InternalError("unknown kind of message");
  }
}

absl::Status RingWorker::CreateQueue(const Message& message) {
  if (message.queue >= queues_.size()) queues_.resize(message.queue + 1);
  Queue& queue = queues_[message.queue];
  recordings_.Forget(message.queue);
  queue = {};
  queue.priority = message.create.priority;
  queue.number = message.create.first;
  ASSIGN_OR_RETURN(queue.list, device_.CreateList(queue.priority));
  return absl::OkStatus();
}

// For a queue that could not be created, which was reported. It has no work to wait for.
absl::Status RingWorker::WriteAtOnce(const Message& message) {
  std::atomic_ref<uint64_t>(*Pointer<uint64_t>(message.write.word))
      .store(message.write.value, std::memory_order_release);
  return absl::OkStatus();
}

// If this fails, the daemon would wait for ever. It replaces the executor, which runs unfinished work again.
absl::Status RingWorker::Announce(const Message& message, LevelZeroQueue& queue) {
  absl::Status written = queue.WriteValue(Pointer<uint64_t>(message.write.word), message.write.value);
  if (written.ok() || absl::IsUnavailable(written)) return written;
  return absl::UnavailableError(absl::StrCat("cannot report progress: ", written.message()));
}

void RingWorker::LoadModule(const Message& message) {
  auto image = std::make_unique<kernels::ModuleImage>();
  image->format = static_cast<kernels::ModuleImage::Format>(message.load.format);
  image->bytes.assign(reinterpret_cast<const char*>(PayloadOf(message)), message.load.bytes);
  if (message.load.module >= modules_.size()) modules_.resize(message.load.module + 1);
  modules_[message.load.module] = std::move(image);
}

// All launches of the kernel are done. Its number will be reused.
void RingWorker::UnloadKernel(const Message& message) {
  recordings_.ForgetKernel(message.kernel);
  if (message.kernel < kernels_.size() && kernels_[message.kernel].module != nullptr) {
    device_.Unload(kernels_[message.kernel]);
    kernels_[message.kernel] = {};
  }
  modules_[message.load.module].reset();
}

// Loads the kernel before its first launch. An error occurs again at the launch, and is reported for the
// queue that launches.
absl::Status RingWorker::LoadKernel(const Message& message) {
  while (kernels_.size() <= message.kernel) kernels_.emplace_back();
  kernels::Kernel& kernel = kernels_[message.kernel];
  kernel.index = message.kernel;
  kernel.module = modules_[message.load.module].get();
  kernel.entry.assign(reinterpret_cast<const char*>(PayloadOf(message)), message.load.bytes);
  const absl::Status loaded = device_.Load(kernel).status();
  return absl::IsUnavailable(loaded) ? loaded : absl::OkStatus();
}

absl::Status RingWorker::Launch(const Message& message, LevelZeroQueue& queue) {
  const std::byte* const values = PayloadOf(message);
  const auto* const offsets = reinterpret_cast<const uint16_t*>(values + message.launch.argument_bytes);
  arguments_.resize(message.launch.argument_count);
  for (uint32_t i = 0; i < message.launch.argument_count; ++i) arguments_[i] = values + offsets[i];
  const auto& [x, y, z] = message.launch.groups;
  const auto& [size_x, size_y, size_z] = message.launch.group_size;
  return queue.LaunchKernel(kernels_[message.kernel], {x, y, z}, {size_x, size_y, size_z}, arguments_.data());
}

void RingWorker::Report(uint32_t queue, const absl::Status& error) {
  QueueReport& report = ring_.pages().reports[queue];
  if (report.raised.load(std::memory_order_acquire) != 0) return;
  report.code = static_cast<uint32_t>(error.code());
  transport::SetText(report.text, std::string_view(error.message().data(), error.message().size()));
  report.raised.store(1, std::memory_order_release);
}

// Finds a lost device, which only a call into the driver reports, when there is no work to append.
absl::Status RingWorker::CheckQueues() {
  bool busy = false;
  for (Queue& queue : queues_) {
    if (!queue.busy) continue;
    absl::Status status = queue.list->Synchronize(0);
    if (status.ok()) queue.busy = false;
    if (absl::IsUnavailable(status)) return status;
    busy |= queue.busy;
  }
  if (working_ && !busy) activity_.Clear(number_);
  working_ = busy;
  return absl::OkStatus();
}

absl::Status RingWorker::Idle() {
  const Clock::time_point now = Clock::now();
  if (!idle_) idle_since_ = checked_ = now;
  idle_ = true;
  if (now - checked_ >= kCheck) {
    checked_ = now;
    RETURN_IF_ERROR(CheckQueues());
  }
  if (spin::kExecutor.Continues(idle_since_, now)) {
    for (int i = 0; i < 16; ++i) transport::CpuRelax();
    return absl::OkStatus();
  }
  ring_.Sleep(working_ ? kCheckMs : -1);
  return absl::OkStatus();
}

}  // namespace xpud::executor::process
