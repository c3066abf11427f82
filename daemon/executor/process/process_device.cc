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
    : options_(std::move(options)),
      addresses_(std::move(addresses)),
      rings_(options_.command.rings),
      background_(options_.wake) {}

absl::StatusOr<std::unique_ptr<ProcessDevice>> ProcessDevice::Create(ProcessDeviceOptions options,
                                                                     std::unique_ptr<ExecutorProcess> first) {
  ASSIGN_OR_RETURN(AddressSpace chunks, AddressSpace::ForChunks(options.index));
  ASSIGN_OR_RETURN(AddressSpace hosts, AddressSpace::ForHostMemory(options.index));
  ASSIGN_OR_RETURN(AddressSpace clients, AddressSpace::ForClientMemory(options.index));
  std::unique_ptr<ProcessDevice> device(
      new ProcessDevice(std::move(options), {std::move(chunks), std::move(hosts), std::move(clients)}));
  device->properties_ = first->properties();
  device->process_ = std::move(first);
  device->rings_.Connect(device->process_->rings());
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
  if (!rings_.online()) return absl::UnavailableError("the device's executor is being replaced");
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
  absl::Status given = rings_.online() ? Give(*process_, address, memory) : absl::OkStatus();
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
    if (rings_.online() && memory.kind != Memory::Kind::kClient) TakeBack(*process_, address, memory);
    if (rings_.online() && memory.kind == Memory::Kind::kClient)
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
  if (!rings_.online() || import->process != process_) return Import(import);
  memory_[import->there] = import->memory;
  import->done(std::make_unique<SharedHostMemory>(*this, import->here, import->there, Mapping()));
}

// ---- queues

absl::StatusOr<std::unique_ptr<DeviceQueue>> ProcessDevice::CreateQueue(int priority, uint64_t owner) {
  ASSIGN_OR_RETURN(const uint32_t slot, queues_.FindFree());
  auto queue = std::make_unique<ProcessQueue>(rings_, kernels_, queues_, slot, owner, priority);
  if (incomplete_.contains(owner)) queue->Rewind(0);  // held back like its owner's other queues
  queue->SendCreation();  // if the ring is full, it is sent with the first command
  return queue;
}

void ProcessDevice::Forget(std::vector<const kernels::Kernel*>& kernels) {
  absl::flat_hash_set<uint32_t> needed;
  queues_.ForEach(
      [&](ProcessQueue& queue) { queue.ForEachKernel([&](uint32_t kernel) { needed.insert(kernel); }); });
  kernels_.Unload(kernels, needed);
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

int ProcessDevice::alarm_fd() const { return process_ != nullptr ? process_->pidfd() : -1; }

}  // namespace xpud::executor::process
