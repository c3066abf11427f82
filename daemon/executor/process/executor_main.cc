#include "daemon/executor/process/executor_main.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/back_end.h"
#include "daemon/executor/level_zero/driver.h"
#include "daemon/executor/process/channel.h"
#include "daemon/executor/process/executor_memory.h"
#include "daemon/executor/process/memory_server.h"
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

struct Channels {
  Channel memory{UniqueFd(kMemoryChannelFd)}, compiler{UniqueFd(kCompilerChannelFd)},
      imports{UniqueFd(kImportChannelFd)};
  std::deque<Channel> movers;
};

// Answers kTakeDevice when everything is ready.
absl::Status Serve(const DriverOptions& options, int index, int rings, Channels& channels) {
  ASSIGN_OR_RETURN(auto devices, OpenLevelZeroDevices(options));
  if (static_cast<size_t>(index) >= devices.size())
    return absl::NotFoundError(absl::StrCat("there is no device ", index, " of kind ", options.device));
  LevelZeroDevice& device = *devices[static_cast<size_t>(index)];
  RETURN_IF_ERROR(device.memory().CheckShares());
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
  ExecutorMemory memory(device.memory());
  const MemoryServer::OnLoss on_loss = {
      .lost = [&](const absl::Status& lost) { loss_report.Say(lost); },
      .end = [] { _exit(kExitDeviceLost); }};  // the daemon starts another executor
  MemoryServer memory_server(memory, device, channels.memory, on_loss);
  CompilerServer compiler_server(*for_compiler, channels.compiler);
  MemoryServer import_server(memory, *for_imports, channels.imports, on_loss);
  std::deque<MemoryServer> move_servers;
  for (Channel& channel : channels.movers) move_servers.emplace_back(memory, device, channel, on_loss);
  TimeKeeper times(device, workers.front().second.pages().times);
  Activity activity;
  // If one thread cannot be started, the process must end at once: the others use what is on this stack.
  absl::Status started = StartDetached("xpud-compile", [&] { compiler_server.Run(); });
  const auto start = [&](const char* name, MemoryServer& server) {
    started.Update(StartDetached(name, [&server] {
      server.Run();
      _exit(kExitDaemonGone);
    }));
  };
  start("xpud-import", import_server);
  for (MemoryServer& server : move_servers) start("xpud-move", server);
  started.Update(StartDetached("xpud-sensors", [&, &exchange = workers.front().second.pages().sensors] {
    exchange.Serve([&] { return device.ReadSensors(); });
  }));
  started.Update(StartDetached("xpud-times", [&] { times.Serve(); }));
  for (uint32_t i = 0; i < workers.size(); ++i)
    started.Update(StartDetached("xpud-append", [&, i] {
      ServeRing(*workers[i].first, workers[i].second, activity, times, i, loss_report);
    }));
  Answer description = Describe(device.properties(), static_cast<uint32_t>(devices.size()));
  description.moves = device.memory().moves_chunks() ? 1 : 0;
  for (size_t other = 0; other < devices.size(); ++other) {
    if (devices[other].get() != &device && device.CanMap(*devices[other]))
      description.peers |= uint64_t{1} << other;
  }
  if (!started.ok()) {
    channels.memory.Respond(started, description);
    _exit(kExitFailed);
  }
  channels.memory.Respond(absl::OkStatus(), description);
  memory_server.Run();
  _exit(kExitDaemonGone);  // the other threads use what is on this stack
}

bool RunsPtx(const DriverOptions& options) {
  const auto back_ends = ListBackEnds(options.driver_library);
  return back_ends.ok() && std::any_of(back_ends->begin(), back_ends->end(), [&](const BackEnd& back_end) {
           return back_end.name == options.device && back_end.target == kernels::Target::kNvptx;
         });
}

[[noreturn]] void ServeDevice(const DriverOptions& options, int index, int rings) {
  pthread_setname_np(pthread_self(), "xpud-spare");
  absl::Status loaded = SetDriverEnvironment(options.driver_library, std::span(&options.device, 1));
  // Only saves time later: without a thread, the libraries are loaded when they are used.
  if (RunsPtx(options)) (void)StartDetached("xpud-load", [] { kernels::LoadGpuLibraries(); });
  Channels channels;
  for (int fd = kFirstMoverChannelFd; fd < kFirstRingFd; ++fd) channels.movers.emplace_back(UniqueFd(fd));
  if (loaded.ok()) loaded = LoadDrivers(options);
  if (!channels.memory.Next().ok()) _exit(kExitDaemonGone);  // otherwise the message is kTakeDevice
  pthread_setname_np(pthread_self(), "xpud-executor");
  const absl::Status failed = loaded.ok() ? Serve(options, index, rings, channels) : loaded;
  Answer answer = {};
  channels.memory.Respond(failed, answer);
  _exit(kExitFailed);  // the thread xpud-load may still run
}

}  // namespace

void ServeDevice(const ServeArguments& arguments) {
  ServeDevice({.driver_library = arguments.driver_library, .device = arguments.back_end}, arguments.device,
              arguments.rings);
}

}  // namespace xpud::executor::process
