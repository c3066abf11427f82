#include "daemon/executor/process/process_device.h"

#include <spdlog/spdlog.h>

#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/executor/process/launch_batch.h"
#include "daemon/executor/process/process_queue.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(1);
constexpr int kMaxFailures = 3;

double Milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

ProcessDevice::ProcessDevice(ProcessDeviceOptions options)
    : options_(std::move(options)),
      spare_(options_.index, *options_.spawner, options_.command, options_.standby),
      rings_(options_.command.rings),
      replacer_(spare_, options_.wake) {}

absl::StatusOr<std::unique_ptr<ProcessDevice>> ProcessDevice::Create(ProcessDeviceOptions options,
                                                                     std::unique_ptr<ExecutorProcess> first) {
  std::unique_ptr<ProcessDevice> device(new ProcessDevice(std::move(options)));
  const uint32_t index = device->options_.index;
  device->properties_ = first->properties();
  device->process_ = std::move(first);
  device->rings_.Connect(device->process_->rings());
  device->shared_.Publish(device->process_);
  ASSIGN_OR_RETURN(device->memory_, MemoryMap::Create(index, device->shared_, device->options_.wake));
  RETURN_IF_ERROR(device->memory_->Adopt(device->process_, {}));
  ASSIGN_OR_RETURN(auto probes, device->memory_->AllocateHost(Recovery::kProbeBytes));
  device->recovery_ =
      std::make_unique<Recovery>(index, device->rings_, device->queues_, *device->memory_, std::move(probes));
  device->spare_.Start();
  return device;
}

ProcessDevice::~ProcessDevice() {
  options_.spawner->Close();
  shared_.Publish(nullptr);
  if (process_ != nullptr) process_->Kill();  // aborts an import
}

absl::Status ProcessDevice::CheckUsable() const {
  if (!is_lost_) return absl::OkStatus();
  return absl::UnavailableError("the device is lost: no executor could be started for it");
}

absl::StatusOr<std::unique_ptr<HostMemory>> ProcessDevice::AllocateHost(uint64_t bytes) {
  RETURN_IF_ERROR(CheckUsable());
  return memory_->AllocateHost(bytes);
}

absl::StatusOr<std::unique_ptr<HostMemory>> ProcessDevice::Import(const transport::SharedBytes& memory) {
  RETURN_IF_ERROR(CheckUsable());
  return memory_->Import(memory);
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> ProcessDevice::CreateQueue(PriorityClass priority,
                                                                        uint64_t owner) {
  ASSIGN_OR_RETURN(const uint32_t slot, queues_.FindFree());
  auto queue = std::make_unique<ProcessQueue>(rings_, kernels_, queues_, slot, owner, priority);
  if (!memory_->IsComplete(owner)) queue->Rewind(0);  // held back like its owner's other queues
  queue->SendCreation();  // if the ring is full, it is sent with the first command
  return queue;
}

void ProcessDevice::Forget(std::vector<const kernels::Kernel*>& kernels) {
  absl::flat_hash_set<uint32_t> needed;
  queues_.ForEach(
      [&](ProcessQueue& queue) { queue.ForEachKernel([&](uint32_t kernel) { needed.insert(kernel); }); });
  kernels_.Unload(kernels, needed);
}

absl::StatusOr<std::string> ProcessDevice::Assemble(const std::string& text) {
  return shared_.With([&](ExecutorProcess& process) { return process.Assemble(text); });
}

absl::StatusOr<uint64_t> ProcessDevice::RunHostKernel(const kernels::Launch& launch) {
  std::thread beside = spare_.RunHostKernel(launch);
  auto answer = shared_.With([&](ExecutorProcess& process) { return process.RunHostKernel(launch); });
  if (beside.joinable()) beside.join();
  return answer;
}

SensorReadings ProcessDevice::ReadSensors() {
  constexpr std::chrono::milliseconds kLimit{200};
  const Process process = shared_.Get();
  return process != nullptr ? process->AskSensors(kLimit) : NoReadings(SensorState::kNoExecutor);
}

// Also after the end of the trace: of work that ended before.
void ProcessDevice::TakeTimes() {
  rings_.times().Take([&](const TimesExchange::Entry& entry) {
    ProcessQueue* const queue = queues_.Find(entry.queue);
    if (queue == nullptr) return;
    const WorkTime& time = entry.time;
    const bool one = time.what == WorkTime::What::kRan || time.what == WorkTime::What::kAppended;
    const bool several = time.what == WorkTime::What::kReplayed && time.count <= kMaxBatchLaunches;
    if (time.began_ns <= time.ended_ns && (several || (one && time.count == 1))) queue->AddTime(time);
  });
}

// ---- the executor's health, and the next one

std::vector<Verdict> ProcessDevice::Poll() {
  for (const auto& [owner, given] : memory_->TakeGiven()) recovery_->FinishMemory(owner, given);
  if (rings_.online()) {
    TakeTimes();
    CheckHealth();
    if (rings_.online()) ProbeSuspects();
  } else if (auto replacement = replacer_.Take()) {
    FinishReplacement(*std::move(replacement));
  }
  return recovery_->TakeVerdicts();
}

void ProcessDevice::CheckHealth() {
  using Ending = Replacer::Ending;
  const Clock::time_point now = Clock::now();
  if (now - last_check_ < kCheckInterval) return;
  last_check_ = now;
  const bool ended = process_->Ended();  // must be read before the reason in shared memory
  if (const auto fault = rings_.Fault())
    return Lose(Ending::kFaulted, absl::StrCat("its device faulted: ", *fault));
  if (ended)
    return process_->hung() ? Lose(Ending::kHung, "it did not answer") : Lose(Ending::kEnded, "it ended");
  queues_.ForEach([](ProcessQueue& queue) { queue.SendRest(); });  // what the ring had no space for
  if (options_.command_limit.count() == 0) return;
  if (std::vector<uint64_t> hung = hangs_.Check(options_.command_limit); !hung.empty()) {
    const std::string what =
        hung.size() == 1 ? absl::StrCat("a command of session ", hung.front()) : "a command";
    Lose(Ending::kHung, absl::StrCat(what, " ran for longer than ", options_.command_limit.count(), " ms"),
         std::move(hung));
  }
}

void ProcessDevice::ProbeSuspects() {
  recovery_->Probe();
  const auto overdue = recovery_->Overdue();
  if (!overdue || options_.command_limit.count() != 0) return;
  Lose(Replacer::Ending::kHung,
       absl::StrCat("the commands of session ", *overdue,
                    " that were in flight when an executor was lost do not finish"),
       {*overdue});
}

void ProcessDevice::Lose(Replacer::Ending ending, const std::string& what, std::vector<uint64_t> hung) {
  loss_ = what;
  lost_at_ = Clock::now();
  hung_ = std::move(hung);
  spdlog::warn("executor_lost device={} pid={} reason=\"{}\"", options_.index, process_->pid(), what);
  rings_.TakeOffline();
  memory_->LoseExecutor();
  replacer_.Start(process_, ending, memory_->parts());
}

void ProcessDevice::FinishReplacement(Replacer::Replacement replacement) {
  if (process_ != nullptr) {
    if (hung_.empty() && !replacement.end.text.empty())
      absl::StrAppend(&loss_, " (", replacement.end.text, ")");
    recovery_->Begin(
        {loss_, std::exchange(hung_, {}), replacement.end.from_outside && !replacement.end.ours});
    rings_.Disconnect();
    process_ = nullptr;
  }
  const absl::Status adopted = Adopt(std::move(replacement));
  if (adopted.ok()) return;
  spdlog::error("executor_not_replaced device={} error=\"{}\"", options_.index,
                std::string(adopted.message()));
  if (++failures_ < kMaxFailures) return replacer_.Start(nullptr, Replacer::Ending::kEnded, memory_->parts());
  is_lost_ = true;
  shared_.Publish(nullptr);
  queues_.ForEach([&](const ProcessQueue& queue) {
    recovery_->Blame(queue.owner(), absl::StrCat("the device is lost: ", adopted.message()));
  });
}

absl::Status ProcessDevice::Adopt(Replacer::Replacement replacement) {
  RETURN_IF_ERROR(replacement.process.status());
  RETURN_IF_ERROR(memory_->Adopt(*replacement.process, replacement.memory));
  process_ = *std::move(replacement.process);
  failures_ = 0;
  ++replaced_;
  kernels_.ForgetLoaded();
  hangs_.Restart();
  rings_.Connect(process_->rings());
  shared_.Publish(process_);
  recovery_->Resume();
  spdlog::info("executor_replaced device={} pid={} after_ms={:.0f} suspects={}", options_.index,
               process_->pid(), Milliseconds(Clock::now() - lost_at_), recovery_->suspects());
  spare_.Start();
  return absl::OkStatus();
}

}  // namespace xpud::executor::process
