#include "daemon/executor/process/process_device.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "daemon/executor/process/process_queue.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

constexpr auto kPlaceInterval = std::chrono::milliseconds(1);
constexpr auto kCloseAfter = std::chrono::seconds(10);  // a post for batch that nobody uses
constexpr auto kOpenAgain = std::chrono::seconds(60);   // one that could not be opened
constexpr size_t kMaxEnded = 64;                        // sessions that have ended and are still remembered

}  // namespace

ProcessDevice::ProcessDevice(ProcessDeviceOptions options, UniqueFd alarms)
    : options_(std::move(options)),
      alarms_(std::move(alarms)),
      spare_(options_.index, *options_.spawner, options_.command, options_.standby),
      ends_([] {}, "xpud-ends") {}

absl::StatusOr<std::unique_ptr<ProcessDevice>> ProcessDevice::Create(ProcessDeviceOptions options,
                                                                     std::unique_ptr<ExecutorProcess> first) {
  UniqueFd alarms(epoll_create1(EPOLL_CLOEXEC));
  if (!alarms.valid()) return DescriptorError("epoll_create1");
  std::unique_ptr<ProcessDevice> device(new ProcessDevice(std::move(options), std::move(alarms)));
  const ProcessDeviceOptions& made = device->options_;
  device->properties_ = first->properties();
  ASSIGN_OR_RETURN(device->memory_, MemoryMap::Create(made.index, made.wake));
  ASSIGN_OR_RETURN(
      device->all_,
      ExecutorPost::Create({.name = "all", .device = made.index, .rings = made.rings, .wake = made.wake},
                           device->queues_, device->spare_, *device->memory_));
  const bool moves_chunks = first->moves_chunks();
  RETURN_IF_ERROR(device->all_->Fill(std::move(first)));
  // Its queues are of one class, which uses all rings.
  ASSIGN_OR_RETURN(device->batch_, ExecutorPost::Create({.name = "batch",
                                                         .device = made.index,
                                                         .rings = {.interactive = made.rings.total()},
                                                         .apart = true,
                                                         .clients = MemoryHolder::Clients::kExpected,
                                                         .wake = made.wake},
                                                        device->queues_, device->spare_, *device->memory_));
  if (moves_chunks) {
    device->transfers_ = std::make_unique<ProcessTransfers>(*device->memory_);
    device->mover_ = std::make_unique<ChunkMover>(made.wake, *device->transfers_);
  }
  device->spare_.Start();
  device->Watch(ExecutorRole::kAll);
  return device;
}

ProcessDevice::~ProcessDevice() {
  options_.spawner->Close();
  for (ExecutorPost* const post : {all_.get(), batch_.get()}) {
    if (post != nullptr) post->End();
  }
  mover_ = nullptr;
  if (memory_ != nullptr) memory_->Stop();
}

absl::Status ProcessDevice::CheckUsable() const {
  if (all_->state() != State::kLost) return absl::OkStatus();
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
  auto queue = std::make_unique<ProcessQueue>(all_->home(), queues_, slot, owner, priority);
  if (!all_->memory().IsComplete(owner)) queue->Rewind(0);  // held back like its owner's other queues
  queue->SendCreation();  // if the ring is full, it is sent with the first command
  return queue;
}

void ProcessDevice::Forget(std::vector<const kernels::Kernel*>& kernels) {
  absl::flat_hash_set<uint32_t> needed;
  queues_.ForEach(
      [&](ProcessQueue& queue) { queue.ForEachKernel([&](uint32_t kernel) { needed.insert(kernel); }); });
  std::vector<const kernels::Kernel*> apart = kernels;
  all_->kernels().Unload(kernels, needed);
  batch_->kernels().Unload(apart, needed);
  for (const kernels::Kernel* const kernel : apart) {
    if (std::ranges::find(kernels, kernel) == kernels.end()) kernels.push_back(kernel);
  }
}

absl::StatusOr<std::string> ProcessDevice::Assemble(const std::string& text) {
  return all_->shared().With([&](ExecutorProcess& process) { return process.Assemble(text); });
}

absl::StatusOr<uint64_t> ProcessDevice::RunHostKernel(const kernels::Launch& launch) {
  std::thread beside = spare_.RunHostKernel(launch);
  auto answer = all_->shared().With([&](ExecutorProcess& process) { return process.RunHostKernel(launch); });
  if (beside.joinable()) beside.join();
  return answer;
}

SensorReadings ProcessDevice::ReadSensors() {
  constexpr std::chrono::milliseconds kLimit{200};
  const Process process = all_->shared().Get();
  return process != nullptr ? process->AskSensors(kLimit) : NoReadings(SensorState::kNoExecutor);
}

uint64_t ProcessDevice::replayed_launches() const {
  return all_->rings().replayed_launches() + batch_->rings().replayed_launches();
}

uint32_t ProcessDevice::Trace(bool on) {
  batch_ticket_ = batch_->rings().Trace(on);
  return all_->rings().Trace(on);
}

bool ProcessDevice::Traced(uint32_t ticket) const {
  return all_->rings().Traced(ticket) && batch_->rings().Traced(batch_ticket_);
}

// ---- the executors, and which queues are where

std::vector<Verdict> ProcessDevice::Poll() {
  all_->Poll(options_.command_limit);
  batch_->Poll(options_.command_limit);
  if (all_->state() == State::kLost && !std::exchange(blamed_, true)) all_->Blame();
  Place();
  if (mover_ != nullptr) mover_->FinishDone();
  for (const ExecutorRole role : kExecutorRoles) Watch(role);
  std::vector<Verdict> verdicts = all_->TakeVerdicts();
  std::ranges::move(batch_->TakeVerdicts(), std::back_inserter(verdicts));
  return verdicts;
}

uint64_t ProcessDevice::unopened_bytes() const {
  const bool may_open = options_.batch_executor != BatchExecutor::kOff && batch_->state() == State::kVacant;
  return may_open && properties_.kind == "gpu" ? kContextBytes : 0;
}

bool ProcessDevice::BelongsApart(const ProcessQueue& queue) const {
  if (queue.priority() != PriorityClass::kBatch) return false;
  return options_.batch_executor == BatchExecutor::kOn || queue.had_long();
}

void ProcessDevice::OpenBatch(Clock::time_point now) {
  if (batch_failed_ != Clock::time_point() && now - batch_failed_ < kOpenAgain) return;
  batch_->Open();
}

void ProcessDevice::CloseBatch() {
  spdlog::info("executor_closed device={} post=batch pid={}", options_.index, batch_->process()->pid());
  // Its end takes as long as the driver's context does.
  ends_.Run([process = batch_->Vacate()]() mutable { process = nullptr; }, [] {});
}

void ProcessDevice::Place() {
  if (options_.batch_executor == BatchExecutor::kOff) return;
  const Clock::time_point now = Clock::now();
  if (now - placed_ < kPlaceInterval) return;
  placed_ = now;
  ends_.FinishDone();
  if (batch_->state() == State::kLost) {
    batch_failed_ = now;
    batch_->GiveUp(all_->home());
  }
  const bool is_there = batch_->state() == State::kOnline;
  bool used = false;
  size_t expected = 0;
  queues_.ForEach([&](ProcessQueue& queue) {
    const bool apart = BelongsApart(queue);
    used |= apart || queue.apart();
    expected += apart;
    if (apart && is_there) batch_->memory().Expect(queue.owner());
    const bool goes = apart && is_there && batch_->memory().IsComplete(queue.owner());
    // One that is there stays while its executor is replaced.
    queue.Move(goes || (apart && queue.apart()) ? batch_->home() : all_->home());
  });
  if (batch_->memory().expected() > 2 * expected + kMaxEnded) ForgetEnded();
  if (used) batch_used_ = now;
  if (used && batch_->state() == State::kVacant) OpenBatch(now);
  if (is_there && !used && now - batch_used_ > kCloseAfter) CloseBatch();
}

void ProcessDevice::ForgetEnded() {
  absl::flat_hash_set<uint64_t> living;
  queues_.ForEach([&](const ProcessQueue& queue) { living.insert(queue.owner()); });
  batch_->memory().ForgetEnded([&](uint64_t owner) { return living.contains(owner); });
}

void ProcessDevice::Watch(ExecutorRole role) {
  const Process& process = PostOf(role).process();
  Watched& watched = watched_[static_cast<size_t>(role)];
  const Watched now = process == nullptr ? Watched() : Watched{.fd = process->pidfd(), .pid = process->pid()};
  if (now == watched) return;
  // A descriptor that was closed has left by itself.
  if (watched.fd >= 0) epoll_ctl(alarms_.get(), EPOLL_CTL_DEL, watched.fd, nullptr);
  watched = now;
  if (now.fd < 0) return;
  epoll_event event = {};
  event.events = EPOLLIN;
  epoll_ctl(alarms_.get(), EPOLL_CTL_ADD, now.fd, &event);
}

}  // namespace xpud::executor::process
