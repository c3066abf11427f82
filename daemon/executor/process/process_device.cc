#include "daemon/executor/process/process_device.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/executor/process/launch_batch.h"
#include "proto/base/check.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/mapping.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

// Small, so that scheduling decisions take effect soon, but enough to keep the executor busy.
constexpr size_t kMaxBacklog = 96 << 10;
constexpr auto kWaitForExecutor = std::chrono::seconds(30);

}  // namespace

class ProcessDevice::DeviceChunk final : public Chunk {
 public:
  DeviceChunk(ProcessDevice& device, uint64_t address, uint64_t bytes)
      : Chunk(reinterpret_cast<std::byte*>(address), bytes), device_(device) {}
  ~DeviceChunk() override { device_.RemoveMemory(reinterpret_cast<uint64_t>(address())); }

 private:
  ProcessDevice& device_;
};

class ProcessDevice::SharedHostMemory final : public HostMemory {
 public:
  SharedHostMemory(ProcessDevice& device, std::byte* here, uint64_t there, Mapping mapping)
      : HostMemory(here, reinterpret_cast<const std::byte*>(there)),
        device_(device),
        there_(there),
        mapping_(std::move(mapping)) {}
  ~SharedHostMemory() override { device_.RemoveMemory(there_); }

 private:
  ProcessDevice& device_;
  const uint64_t there_;
  Mapping mapping_;  // empty if another object owns the memory
};

ProcessDevice::ProcessDevice(ProcessDeviceOptions options, Addresses addresses)
    : options_(std::move(options)), addresses_(std::move(addresses)), background_(options_.wake) {}

absl::StatusOr<std::unique_ptr<ProcessDevice>> ProcessDevice::Create(ProcessDeviceOptions options,
                                                                     std::unique_ptr<ExecutorProcess> first) {
  ASSIGN_OR_RETURN(AddressSpace chunks, AddressSpace::ForChunks(options.index));
  ASSIGN_OR_RETURN(AddressSpace hosts, AddressSpace::ForHostMemory(options.index));
  ASSIGN_OR_RETURN(AddressSpace clients, AddressSpace::ForClientMemory(options.index));
  std::unique_ptr<ProcessDevice> device(
      new ProcessDevice(std::move(options), {std::move(chunks), std::move(hosts), std::move(clients)}));
  device->properties_ = first->properties();
  device->process_ = std::move(first);
  device->Publish(device->process_);
  ASSIGN_OR_RETURN(device->probe_words_, device->AllocateHost(kMaxQueues * sizeof(uint64_t)));
  device->StartSpare();
  return device;
}

ProcessDevice::~ProcessDevice() {
  options_.spawner->Close();
  if (replacer_.joinable()) replacer_.join();
  if (spare_starter_.joinable()) spare_starter_.join();
  probe_words_.reset();
  Publish(nullptr);
  if (process_ != nullptr) process_->Kill();  // aborts an import
}

// ---- memory

absl::StatusOr<std::unique_ptr<Chunk>> ProcessDevice::AllocateChunk(uint64_t bytes) {
  if (!online()) return absl::UnavailableError("the device's executor is being replaced");
  // CUDA puts memory of its own, such as the stacks of kernels, where a chunk was freed. Such addresses stay
  // taken.
  constexpr int kMaxTries = 64;
  absl::Status status;
  for (int i = 0; i < kMaxTries; ++i) {
    ASSIGN_OR_RETURN(const uint64_t address, addresses_.chunks.Take(bytes));
    auto fd = process_->Allocate(address, bytes);
    if (fd.ok()) {
      memory_[address] = {bytes, std::make_shared<UniqueFd>(*std::move(fd)), Memory::Kind::kChunk};
      return std::make_unique<DeviceChunk>(*this, address, bytes);
    }
    status = fd.status();
    if (absl::IsAlreadyExists(status)) continue;
    addresses_.chunks.Return(address);
    break;
  }
  return status;
}

absl::Status ProcessDevice::AddHostMemory(uint64_t address, uint64_t bytes, std::shared_ptr<UniqueFd> fd) {
  if (state_ == State::kLost)
    return absl::UnavailableError("the device is lost: no executor could be started for it");
  const Memory memory = {bytes, std::move(fd), Memory::Kind::kHost};
  // If there is no executor yet, the next one gets the memory when it starts; likewise if this one has just
  // been lost.
  absl::Status given = online() ? Give(*process_, address, memory) : absl::OkStatus();
  if (!given.ok() && !absl::IsUnavailable(given)) return given;
  memory_[address] = memory;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<HostMemory>> ProcessDevice::AllocateHost(uint64_t bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("xpud-words", bytes));
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd, bytes, Access::kReadWrite));
  std::byte* const here = mapping.data();
  ASSIGN_OR_RETURN(const uint64_t there, addresses_.hosts.Take(bytes));
  auto memory = std::make_unique<SharedHostMemory>(*this, here, there, std::move(mapping));
  RETURN_IF_ERROR(AddHostMemory(there, bytes, std::make_shared<UniqueFd>(std::move(fd))));
  return memory;
}

absl::StatusOr<std::unique_ptr<HostMemory>> ProcessDevice::Import(const transport::SharedBytes& memory) {
  UniqueFd fd(dup(memory.fd));
  if (!fd.valid()) return DescriptorError("dup");
  ASSIGN_OR_RETURN(const uint64_t there, addresses_.hosts.Take(memory.bytes.size()));
  auto imported = std::make_unique<SharedHostMemory>(*this, memory.bytes.data(), there, Mapping());
  RETURN_IF_ERROR(AddHostMemory(there, memory.bytes.size(), std::make_shared<UniqueFd>(std::move(fd))));
  return imported;
}

void ProcessDevice::RemoveMemory(uint64_t address) {
  const auto found = memory_.find(address);
  if (found != memory_.end()) {
    const Memory memory = std::move(found->second);
    memory_.erase(found);
    if (online() && memory.kind != Memory::Kind::kClient) TakeBack(*process_, address, memory);
    if (online() && memory.kind == Memory::Kind::kClient)
      background_.Run([process = process_, address, memory] { TakeBack(*process, address, memory); }, [] {});
  }
  addresses_.chunks.Return(address);
  addresses_.hosts.Return(address);
  addresses_.clients.Return(address);
}

absl::Status ProcessDevice::Give(ExecutorProcess& process, uint64_t address, const Memory& memory) {
  switch (memory.kind) {
    case Memory::Kind::kChunk:
      return process.Import(address, memory.bytes, *memory.fd);
    case Memory::Kind::kHost:
      return process.ImportHost(address, memory.bytes, memory.fd->get());
    case Memory::Kind::kClient:
      return process.ImportSlowly(address, memory.bytes, memory.fd->get());
  }
  return absl::InternalError("unknown kind of memory");
}

void ProcessDevice::TakeBack(ExecutorProcess& process, uint64_t address, const Memory& memory) {
  switch (memory.kind) {
    case Memory::Kind::kChunk:
      return process.Free(address);
    case Memory::Kind::kHost:
      return process.ReleaseHost(address);
    case Memory::Kind::kClient:
      return process.ReleaseSlowly(address);
  }
}

void ProcessDevice::StartImport(const transport::SharedBytes& memory, uint64_t owner, ImportDone done) {
  UniqueFd fd(fcntl(memory.fd, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return done(DescriptorError("fcntl(F_DUPFD_CLOEXEC)"));
  const auto there = addresses_.clients.Take(memory.bytes.size());
  if (!there.ok()) return done(there.status());
  Memory kept = {memory.bytes.size(), std::make_shared<UniqueFd>(std::move(fd)), Memory::Kind::kClient,
                 owner};
  Import(std::make_shared<ClientImport>(
      ClientImport{memory.bytes.data(), *there, std::move(kept), std::move(done), nullptr, {}}));
}

void ProcessDevice::Import(const std::shared_ptr<ClientImport>& import) {
  background_.Run(
      [this, import] {
        do {
          import->process = ExecutorOtherThan(import->process);
          import->status = import->process == nullptr
                               ? absl::UnavailableError("the device's executor is lost")
                               : Give(*import->process, import->there, import->memory);
        } while (absl::IsUnavailable(import->status) && import->process != nullptr);
      },
      [this, import] { FinishImport(import); });
}

// Starts over if the executor was replaced meanwhile: its successor was given the memory that was listed
// before.
void ProcessDevice::FinishImport(const std::shared_ptr<ClientImport>& import) {
  if (!import->status.ok()) {
    addresses_.clients.Return(import->there);
    return import->done(import->status);
  }
  if (!online() || import->process != process_) return Import(import);
  memory_[import->there] = import->memory;
  import->done(std::make_unique<SharedHostMemory>(*this, import->here, import->there, Mapping()));
}

// ---- queues

absl::StatusOr<std::unique_ptr<DeviceQueue>> ProcessDevice::CreateQueue(int priority, uint64_t owner) {
  const auto free = std::find(queues_.begin(), queues_.end(), nullptr);
  if (free == queues_.end() && queues_.size() == kMaxQueues)
    return absl::ResourceExhaustedError(
        absl::StrCat("too many queues on the device (", kMaxQueues, "); destroy some first"));
  const auto slot = static_cast<uint32_t>(free - queues_.begin());
  if (slot == queues_.size()) {
    queues_.push_back(nullptr);
    appended_.push_back(0);
  }
  auto queue = std::make_unique<ProcessQueue>(*this, slot % rings(), slot, owner, priority, appended_[slot]);
  queues_[slot] = queue.get();
  if (online()) process_->ring(queue->ring()).pages().reports[slot].raised.store(0);
  if (incomplete_.contains(owner)) queue->Rewind(0);  // held back like its owner's other queues
  queue->SendCreation();  // if the ring is full, it is sent with the first command
  return queue;
}

void ProcessDevice::RemoveQueue(ProcessQueue& queue) {
  queues_[queue.slot()] = nullptr;
  appended_[queue.slot()] = queue.appended();
  queue.SendDestruction();
}

bool ProcessDevice::HasReport(const ProcessQueue& queue) const {
  return process_ != nullptr &&
         process_->ring(queue.ring()).pages().reports[queue.slot()].raised.load(std::memory_order_acquire) !=
             0;
}

absl::Status ProcessDevice::TakeReport(const ProcessQueue& queue) {
  if (!HasReport(queue)) return absl::OkStatus();
  QueueReport& report = process_->ring(queue.ring()).pages().reports[queue.slot()];
  absl::Status status(static_cast<absl::StatusCode>(report.code), transport::GetText(report.text));
  report.raised.store(0, std::memory_order_release);
  return status.ok() ? absl::InternalError("an executor's report without an error") : status;
}

// ---- the ring

bool ProcessDevice::HasRoom(size_t ring) const {
  return online() && process_->ring(ring).BacklogIsBelow(kMaxBacklog);
}

uint64_t ProcessDevice::position(size_t ring) const { return process_->ring(ring).position(); }

uint64_t ProcessDevice::Taken(size_t ring) const {
  return process_->ring(ring).control().head.load(std::memory_order_acquire);
}

bool ProcessDevice::Send(size_t index, std::span<const std::byte> messages) {
  PrivateRing& ring = process_->ring(index);
  std::byte* const target = ring.Reserve(messages.size());
  if (target == nullptr) return false;
  std::memcpy(target, messages.data(), messages.size());
  ring.Commit(messages.size());
  return true;
}

void ProcessDevice::WakeExecutor(size_t ring) {
  if (online()) process_->ring(ring).Wake();
}

uint32_t ProcessDevice::Register(const kernels::Kernel& kernel) {
  if (kernel.index >= kernels_.size()) kernels_.resize(kernel.index + 1);
  kernels_[kernel.index].kernel = &kernel;
  return kernel.index;
}

bool ProcessDevice::SendModule(size_t ring, const kernels::ModuleImage& image, ModuleRecord& record) {
  if ((record.loaded >> ring & 1) != 0) return true;
  MessageBuffer module;
  module.Add(MessageKind::kLoadModule, 0, std::string_view(image.bytes)).load = {
      image.bytes.size(), static_cast<uint32_t>(image.format), record.number};
  if (!Send(ring, module.bytes())) return false;
  record.loaded |= 1u << ring;
  return true;
}

ProcessDevice::ModuleRecord& ProcessDevice::RecordOf(const kernels::ModuleImage& image) {
  const auto [module, is_new] = modules_.try_emplace(&image);
  if (!is_new) return module->second;
  module->second.number = static_cast<uint32_t>(modules_.size() + free_modules_.size() - 1);
  if (free_modules_.empty()) return module->second;
  module->second.number = free_modules_.back();
  free_modules_.pop_back();
  return module->second;
}

void ProcessDevice::Forget(std::vector<const kernels::Kernel*>& kernels) {
  for (KernelRecord& record : kernels_) record.needed = false;
  for (ProcessQueue* queue : queues_) {
    if (queue != nullptr) queue->ForEachKernel([&](uint32_t kernel) { kernels_[kernel].needed = true; });
  }
  std::erase_if(kernels, [&](const kernels::Kernel* kernel) { return Forget(*kernel); });
}

// The unload message comes after all launches of the kernel, which are done. A replacement executor never
// loads it.
bool ProcessDevice::Forget(const kernels::Kernel& kernel) {
  if (kernel.index >= kernels_.size() || kernels_[kernel.index].kernel != &kernel) return true;
  KernelRecord& record = kernels_[kernel.index];
  if (record.needed) return false;
  const auto module = modules_.find(kernel.module);
  if (module != modules_.end()) {
    MessageBuffer unload;
    Message& message = unload.Add(MessageKind::kUnloadKernel, 0);
    message.kernel = kernel.index;
    message.load = {0, 0, module->second.number};
    for (size_t ring = 0; ring < rings() && online(); ++ring) {
      if ((module->second.loaded >> ring & 1) == 0) continue;
      if (!Send(ring, unload.bytes())) return false;
      record.loaded &= ~(1u << ring);
      module->second.loaded &= ~(1u << ring);
    }
    free_modules_.push_back(module->second.number);
    modules_.erase(module);
  }
  record = {};
  return true;
}

bool ProcessDevice::SendKernel(size_t ring, uint32_t index) {
  KernelRecord& record = kernels_[index];
  if ((record.loaded >> ring & 1) != 0) [[likely]]
    return true;
  const kernels::Kernel& kernel = *record.kernel;
  ModuleRecord& module = RecordOf(*kernel.module);
  if (!SendModule(ring, *kernel.module, module)) return false;
  MessageBuffer load;
  Message& message = load.Add(MessageKind::kLoadKernel, 0, std::string_view(kernel.entry));
  message.kernel = index;
  message.load = {kernel.entry.size(), 0, module.number};
  if (!Send(ring, load.bytes())) return false;
  record.loaded |= 1u << ring;
  return true;
}

// ---- other threads

void ProcessDevice::Publish(Process process) {
  MutexLock lock(published_mutex_);
  published_ = std::move(process);
  published_changed_.NotifyAll();
}

ProcessDevice::Process ProcessDevice::ExecutorOtherThan(const Process& used) {
  const auto until = Clock::now() + kWaitForExecutor;
  MutexLock lock(published_mutex_);
  while (published_ != nullptr && published_ == used) {
    const bool changed = published_changed_.WaitFor(published_mutex_, kWaitForExecutor);
    if (!changed || Clock::now() > until) return nullptr;
  }
  return published_;
}

// Uses the current executor; if it is lost meanwhile, the next one.
template <typename Use>
auto ProcessDevice::WithExecutor(Use use) -> decltype(use(std::declval<ExecutorProcess&>())) {
  Process used;
  for (;;) {
    used = ExecutorOtherThan(used);
    if (used == nullptr) return absl::UnavailableError("the device's executor is lost");
    auto result = use(*used);
    if (!absl::IsUnavailable(result.status())) return result;
  }
}

absl::StatusOr<std::string> ProcessDevice::Assemble(const std::string& text) {
  return WithExecutor([&](ExecutorProcess& process) { return process.Assemble(text); });
}

// A standby executor runs the request too, at the same time, so that it has loaded the library's code when it
// takes over.
absl::StatusOr<uint64_t> ProcessDevice::Ask(const kernels::Launch& launch) {
  Process spare;
  {
    MutexLock lock(published_mutex_);
    last_asked_ = launch;
    spare = spare_;
  }
  std::thread beside;
  if (options_.standby && spare != nullptr) {
    auto started = StartThread("xpud-ask", [spare, &launch] { (void)spare->Ask(launch); });
    if (started.ok()) beside = *std::move(started);  // otherwise the spare loads the code when it takes over
  }
  auto answer = WithExecutor([&](ExecutorProcess& process) { return process.Ask(launch); });
  if (beside.joinable()) beside.join();
  return answer;
}

SensorReadings ProcessDevice::ReadSensors() {
  constexpr std::chrono::milliseconds kLimit{200};
  Process process;
  {
    MutexLock lock(published_mutex_);
    process = published_;
  }
  if (process == nullptr) return NoReadings(SensorState::kNoExecutor);
  return process->AskSensors(kLimit);
}

ExecutorStatus ProcessDevice::executor() const {
  return {process_ != nullptr && state_ != State::kReplacing ? process_->pid() : 0, replaced_};
}

uint32_t ProcessDevice::Trace(bool on) {
  traces_ = on;
  return online() ? times().Want(on) : 0;
}

bool ProcessDevice::Traced(uint32_t ticket) const { return !online() || times().Reached(ticket); }

// Also after the end of the trace: of work that ended before.
void ProcessDevice::TakeTimes() {
  times().Take([&](const TimesExchange::Entry& entry) {
    if (entry.queue >= queues_.size() || queues_[entry.queue] == nullptr) return;
    const WorkTime& time = entry.time;
    const bool one = time.what == WorkTime::What::kRan || time.what == WorkTime::What::kAppended;
    const bool several = time.what == WorkTime::What::kReplayed && time.count <= kMaxBatchLaunches;
    if (time.began_ns <= time.ended_ns && (several || (one && time.count == 1)))
      queues_[entry.queue]->AddTime(time);
  });
}

uint64_t ProcessDevice::replayed_launches() const {
  uint64_t sum = 0;
  for (size_t i = 0; process_ != nullptr && i < rings(); ++i)
    sum += process_->ring(i).control().replayed.load(std::memory_order_relaxed);
  return sum;
}

int ProcessDevice::alarm_fd() const { return process_ != nullptr ? process_->pidfd() : -1; }

}  // namespace xpud::executor::process
