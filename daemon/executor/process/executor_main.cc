#include "daemon/executor/process/executor_main.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/back_end.h"
#include "daemon/executor/level_zero/driver.h"
#include "daemon/executor/process/channel.h"
#include "daemon/executor/process/ring_worker.h"
#include "daemon/executor/process/time_keeper.h"
#include "kernels/library/host_modules.h"
#include "proto/base/mutex.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

// Reports that the device is lost, and why, in shared memory that the daemon reads even after this process
// has ended. The first report counts. Thread-safe.
class LossReport {
 public:
  explicit LossReport(RingControl& control) : control_(control) {}

  void Say(const absl::Status& lost) {
    const MutexLock lock(mutex_);
    if (std::exchange(said_, true)) return;
    transport::SetText(control_.reason, std::string_view(lost.message().data(), lost.message().size()));
    control_.state.store(static_cast<uint32_t>(ExecutorState::kDeviceLost), std::memory_order_release);
  }

 private:
  Mutex mutex_;
  bool said_ ABSL_GUARDED_BY(mutex_) = false;
  RingControl& control_;
};

// Serves requests for device memory and host memory, at addresses that the daemon chooses. One server on the
// main thread; another, with its own channel and device object, for host memory that takes long to import.
class MemoryServer {
 public:
  MemoryServer(LevelZeroDevice& device, Channel& channel, LossReport& loss_report)
      : device_(device), channel_(channel), loss_report_(loss_report) {}

  void Run() {
    for (;;) {
      auto question = channel_.Next();
      if (!question.ok()) _exit(kExitDaemonGone);
      Serve(question->request, question->fd);
    }
  }

 private:
  struct Host {
    std::unique_ptr<HostMemory> memory;
    size_t bytes;
  };

  void Serve(const Request& request, const UniqueFd& fd) {
    Answer answer = {};
    UniqueFd out;
    absl::Status status;
    switch (request.kind) {
      case RequestKind::kAllocate:
        status = Allocate(request, out);
        break;
      case RequestKind::kImport:
        status = Import(request, fd);
        break;
      case RequestKind::kReserve:
        status = Reserve(request);
        break;
      case RequestKind::kImportHost:
        status = ImportHost(request, fd);
        break;
      case RequestKind::kFree:
        chunks_.erase(request.address);
        return;
      case RequestKind::kReleaseHost:
        ReleaseHost(request.address);
        return;
      case RequestKind::kPing:
        break;
      default:
        status = absl::InternalError("unknown kind of request");
    }
    const bool lost = absl::IsUnavailable(status);
    if (lost) loss_report_.Say(status);
    channel_.Respond(status, answer, out.get());
    if (lost) _exit(kExitDeviceLost);  // the daemon starts another executor
  }

  absl::Status Allocate(const Request& request, UniqueFd& out) {
    const auto found = chunks_.find(request.address);
    if (found != chunks_.end()) return device_.ReturnNew(*found->second, out);
    ASSIGN_OR_RETURN(auto chunk, device_.AllocateChunkAt(Pointer(request), request.bytes, out));
    chunks_[request.address] = std::move(chunk);
    return absl::OkStatus();
  }

  absl::Status Import(const Request& request, const UniqueFd& fd) {
    const auto found = chunks_.find(request.address);
    if (found != chunks_.end()) return device_.ReturnImported(*found->second, fd);
    ASSIGN_OR_RETURN(auto chunk, device_.ImportChunkAt(Pointer(request), request.bytes, fd));
    chunks_[request.address] = std::move(chunk);
    return absl::OkStatus();
  }

  absl::Status Reserve(const Request& request) {
    const auto found = chunks_.find(request.address);
    if (found != chunks_.end()) return device_.TakeAway(*found->second);
    ASSIGN_OR_RETURN(auto chunk, device_.ReserveChunkAt(Pointer(request), request.bytes));
    chunks_[request.address] = std::move(chunk);
    return absl::OkStatus();
  }

  static void* Pointer(const Request& request) { return reinterpret_cast<void*>(request.address); }

  absl::Status ImportHost(const Request& request, const UniqueFd& fd) {
    void* const mapped = mmap(Pointer(request), request.bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED_NOREPLACE, fd.get(), 0);
    if (mapped == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping shared memory failed");
    auto memory = device_.Import({{static_cast<std::byte*>(mapped), request.bytes}, fd.get()});
    if (!memory.ok()) {
      munmap(mapped, request.bytes);
      return memory.status();
    }
    hosts_[request.address] = {*std::move(memory), request.bytes};
    return absl::OkStatus();
  }

  void ReleaseHost(uint64_t address) {
    const auto found = hosts_.find(address);
    if (found == hosts_.end()) return;
    found->second.memory.reset();
    munmap(reinterpret_cast<void*>(address), found->second.bytes);
    hosts_.erase(found);
  }

  LevelZeroDevice& device_;
  Channel& channel_;
  LossReport& loss_report_;
  std::map<uint64_t, std::unique_ptr<Chunk>> chunks_;
  std::map<uint64_t, Host> hosts_;
};

// Serves slow requests that concern no queue, on a thread and device object of its own.
class CompilerServer {
 public:
  CompilerServer(LevelZeroDevice& device, Channel& channel) : device_(device), channel_(channel) {}

  void Run() {
    for (;;) {
      auto question = channel_.Next();
      if (!question.ok()) return;
      Answer answer = {};
      UniqueFd out;
      absl::Status status = Serve(*question, answer, out);
      if (!status.ok() && IsLost()) status = absl::UnavailableError("the device is lost");
      channel_.Respond(status, answer, out.get());
    }
  }

 private:
  // Library calls report a lost device with codes of their own.
  bool IsLost() {
    if (list_ == nullptr) list_ = device_.CreateList(PriorityClass::kInteractive).value_or(nullptr);
    return list_ == nullptr || absl::IsUnavailable(list_->Synchronize(0));
  }

  absl::Status Serve(const Channel::Question& question, Answer& answer, UniqueFd& out) {
    ASSIGN_OR_RETURN(std::string input, FromMemfd(question.fd, question.request.bytes));
    if (question.request.kind == RequestKind::kRunHostKernel) {
      ASSIGN_OR_RETURN(answer.value, RunHostKernel(input));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::string code, device_.Assemble(input));
    ASSIGN_OR_RETURN(out, ToMemfd(std::as_bytes(std::span(code))));
    answer.value = code.size();
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> RunHostKernel(const std::string& input) {
    HostKernelHeader header;
    std::memcpy(&header, input.data(), sizeof(header));
    alignas(64) std::byte values[kernels::Launch::kMaxArgumentBytes];
    std::memcpy(values, input.data() + header.values_at, header.value_bytes);
    std::vector<const void*> arguments(header.arguments + 1);
    for (uint32_t i = 0; i < header.arguments; ++i) {
      uint16_t offset;
      std::memcpy(&offset, input.data() + header.offsets_at + i * sizeof(offset), sizeof(offset));
      arguments[i] = values + offset;
    }
    const kernels::Kernel& kernel = Find(input.data() + header.module_at, input.data() + header.entry_at);
    if (list_ == nullptr) {
      ASSIGN_OR_RETURN(list_, device_.CreateList(PriorityClass::kInteractive));
    }
    return list_->RunHostKernel(kernel, arguments);
  }

  const kernels::Kernel& Find(const std::string& module, const std::string& entry) {
    auto& [image, kernel] = kernels_[{module, entry}];
    if (kernel.module == nullptr) {
      image = {kernels::ModuleImage::Format::kHost, module};
      kernel = {static_cast<uint32_t>(kernels_.size() - 1), &image, entry};
    }
    return kernel;
  }

  LevelZeroDevice& device_;
  Channel& channel_;
  std::unique_ptr<LevelZeroQueue> list_;
  std::map<std::pair<std::string, std::string>, std::pair<kernels::ModuleImage, kernels::Kernel>> kernels_;
};

Answer Describe(const DeviceProperties& properties, uint32_t devices) {
  Answer answer = {};
  answer.devices = devices;
  transport::SetText(answer.processor, properties.processor);
  transport::SetText(answer.device.name, properties.name);
  transport::SetText(answer.device.kind, properties.kind);
  transport::SetText(answer.device.vendor, properties.vendor);
  answer.target = static_cast<uint32_t>(properties.target);
  answer.has_doubles = properties.has_doubles ? 1 : 0;
  answer.most_groups = properties.most_groups;
  answer.device.total_memory = properties.total_memory;
  answer.device.compute_units = properties.compute_units;
  answer.device.pci_address = properties.pci_address.bits();
  answer.peak = properties.peak;
  return answer;
}

// Appends messages of one ring, with its own device object, until the process ends.
void ServeRing(LevelZeroDevice& device, PrivateRing& ring, Activity& activity, TimeKeeper& times,
               uint32_t number, LossReport& loss_report) {
  RingWorker worker(device, ring, activity, times, number);
  loss_report.Say(worker.Run());
  _exit(kExitDeviceLost);  // other threads may be inside the driver
}

absl::Status StartDetached(const char* name, std::function<void()> body) {
  ASSIGN_OR_RETURN(std::thread thread, StartThread(name, std::move(body)));
  thread.detach();
  return absl::OkStatus();
}

// Answers kTakeDevice when everything is ready.
absl::Status Serve(const DriverOptions& options, int index, int rings, Channel& memory, Channel& compiler,
                   Channel& imports) {
  ASSIGN_OR_RETURN(auto devices, OpenLevelZeroDevices(options));
  if (static_cast<size_t>(index) >= devices.size())
    return absl::NotFoundError(absl::StrCat("there is no device ", index, " of kind ", options.device));
  LevelZeroDevice& device = *devices[static_cast<size_t>(index)];
  RETURN_IF_ERROR(device.CheckShares());
  // Creates the device's context now, not with the first work.
  RETURN_IF_ERROR(device.CreateList(PriorityClass::kInteractive).status());
  std::vector<std::pair<std::unique_ptr<LevelZeroDevice>, PrivateRing>> workers;
  for (int i = 0; i < rings; ++i) {
    const int fd = kFirstRingFd + 2 * i;
    ASSIGN_OR_RETURN(PrivateRing ring, PrivateRing::Open(UniqueFd(fd), UniqueFd(fd + 1)));
    ASSIGN_OR_RETURN(auto own, device.OpenAgain());
    workers.emplace_back(std::move(own), std::move(ring));
  }
  ASSIGN_OR_RETURN(auto for_compiler, device.OpenAgain());
  ASSIGN_OR_RETURN(auto for_imports, device.OpenAgain());
  LossReport loss_report(workers.front().second.control());
  MemoryServer memory_server(device, memory, loss_report);
  CompilerServer compiler_server(*for_compiler, compiler);
  MemoryServer import_server(*for_imports, imports, loss_report);
  TimeKeeper times(device, workers.front().second.pages().times);
  Activity activity;
  // If one thread cannot be started, the process must end at once: the others use what is on this stack.
  absl::Status started = StartDetached("xpud-compile", [&] { compiler_server.Run(); });
  started.Update(StartDetached("xpud-import", [&] { import_server.Run(); }));
  started.Update(StartDetached("xpud-sensors", [&, &exchange = workers.front().second.pages().sensors] {
    exchange.Serve([&] { return device.ReadSensors(); });
  }));
  started.Update(StartDetached("xpud-times", [&] { times.Serve(); }));
  for (uint32_t i = 0; i < workers.size(); ++i)
    started.Update(StartDetached("xpud-append", [&, i] {
      ServeRing(*workers[i].first, workers[i].second, activity, times, i, loss_report);
    }));
  Answer description = Describe(device.properties(), static_cast<uint32_t>(devices.size()));
  if (!started.ok()) {
    memory.Respond(started, description);
    _exit(kExitFailed);
  }
  memory.Respond(absl::OkStatus(), description);
  memory_server.Run();
  return absl::OkStatus();
}

bool RunsPtx(const DriverOptions& options) {
  const auto back_ends = ListBackEnds(options.driver_library);
  return back_ends.ok() && std::any_of(back_ends->begin(), back_ends->end(), [&](const BackEnd& back_end) {
           return back_end.name == options.device && back_end.target == kernels::Target::kNvptx;
         });
}

[[noreturn]] void ServeDevice(const DriverOptions& options, int index, int rings) {
  pthread_setname_np(pthread_self(), "xpud-spare");
  // Only saves time later: without a thread, the libraries are loaded when they are used.
  if (RunsPtx(options)) (void)StartDetached("xpud-load", [] { kernels::LoadGpuLibraries(); });
  Channel memory{UniqueFd(kMemoryChannelFd)}, compiler{UniqueFd(kCompilerChannelFd)},
      imports{UniqueFd(kImportChannelFd)};
  const absl::Status loaded = LoadDrivers(options);
  if (!memory.Next().ok()) _exit(kExitDaemonGone);  // otherwise the message is kTakeDevice
  pthread_setname_np(pthread_self(), "xpud-executor");
  const absl::Status failed = loaded.ok() ? Serve(options, index, rings, memory, compiler, imports) : loaded;
  Answer answer = {};
  memory.Respond(failed, answer);
  _exit(kExitFailed);  // the thread xpud-load may still run
}

}  // namespace

void ServeDevice(const ServeArguments& arguments) {
  ServeDevice({.driver_library = arguments.driver_library, .device = arguments.back_end}, arguments.device,
              arguments.rings);
}

}  // namespace xpud::executor::process
