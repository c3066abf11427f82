#include "sdk/torch/csrc/runtime/profiler.h"

// torch.profiler: the commands of this process on xpud as activities of Kineto, PyTorch's profiler. The
// daemon records when each ran; this process notes which operator sent it. Needs torch 2.13 or later, whose
// Kineto takes profilers of other devices; with older ones this file is empty.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)

// The headers want what torch itself was built with.
#define USE_KINETO
#define FMT_HEADER_ONLY 1

#include <libkineto.h>
#include <time.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "proto/base/clock.h"
#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {
namespace {

using libkineto::ActivityType;

// The operators that this thread is in, as Kineto numbers them; the innermost is last.
thread_local std::vector<uint64_t> operators;

// A moment on both clocks: that of the daemon's records and Kineto's.
struct Moment {
  static Moment Now() {
    timespec wall = {};
    clock_gettime(CLOCK_REALTIME, &wall);
    return {static_cast<int64_t>(NowNs()), int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec};
  }
  int64_t monotonic = 0, wall = 0;
};

// Notes each command that this process sends.
class Launches : public CommandObserver {
 public:
  struct Launch {
    uint64_t sequence;
    int64_t time;        // on the monotonic clock
    uint64_t operation;  // Kineto's number of the operator that sent it; 0: none
    int32_t thread;
  };

  // Calls for one device come one at a time.
  void OnCommand(uint32_t device, uint32_t, uint64_t sequence) override {
    if (device >= kMaxDevices) return;
    by_device_[device].push_back({sequence, static_cast<int64_t>(NowNs()),
                                  operators.empty() ? 0 : operators.back(), libkineto::systemThreadId()});
  }
  // Returns null for a command that was sent before.
  const Launch* Find(uint32_t device, uint64_t sequence) const {
    const auto& launches = by_device_[device];
    const auto found =
        std::lower_bound(launches.begin(), launches.end(), sequence,
                         [](const Launch& launch, uint64_t wanted) { return launch.sequence < wanted; });
    return found != launches.end() && found->sequence == sequence ? &*found : nullptr;
  }

 private:
  std::array<std::vector<Launch>, kMaxDevices> by_device_;
};

bool IsCopy(const ProfiledCommand& command) {
  return command.kind == ProfiledCommand::Kind::kUpload || command.kind == ProfiledCommand::Kind::kDownload ||
         command.kind == ProfiledCommand::Kind::kCopy;
}

// "add.Tensor"
std::string OpOf(const ProfiledCommand& command) {
  if (command.row == nullptr) return "command";
  return std::string(command.row->aten.substr(0, command.row->aten.find('|')));
}

std::string NameOf(const ProfiledCommand& command, const Profile& profile) {
  switch (command.kind) {
    case ProfiledCommand::Kind::kUpload:
      return "Memcpy HtoD";
    case ProfiledCommand::Kind::kDownload:
      return "Memcpy DtoH";
    case ProfiledCommand::Kind::kCopy:
      return "Memcpy DtoD";
    default:
      break;
  }
  if (command.kernel == 0) return OpOf(command);
  const std::string& first = profile.kernels[command.kernel];
  return command.launches == 1 ? first : first + " and " + std::to_string(command.launches - 1) + " more";
}

class ProfilerSession : public libkineto::IActivityProfilerSession {
 public:
  // `records`: somebody wants to know what devices do.
  explicit ProfilerSession(bool records) : records_(records) {}

  // Records what happens on the devices that are in use.
  void start() override {
    begin_ = Moment::Now();
    if (!records_ || Runtime::DeviceCountOrZero() == 0) return;
    Session* const session = Runtime::Get().session();
    if (session == nullptr) return;
    for (int device = 0; device < Runtime::Get().device_count(); ++device) {
      const uint32_t index = static_cast<uint32_t>(device);
      if (device != Runtime::CurrentDevice() && session->Memory(index).allocations == 0) continue;
      if (const absl::Status started = session->StartProfile(index); started.ok()) {
        profiles_.emplace(index, Profile());
      } else {
        Fail(started);
      }
    }
    if (!profiles_.empty()) session->ObserveCommands(&launches_);
  }

  void stop() override {
    end_ = Moment::Now();
    if (profiles_.empty()) return;
    Session* const session = Runtime::Get().session();
    session->ObserveCommands(nullptr);
    for (auto& [device, profile] : profiles_) {
      absl::StatusOr<Profile> recorded = session->StopProfile(device);
      if (recorded.ok()) {
        profile = *std::move(recorded);
      } else {
        Fail(recorded.status());
      }
    }
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, begin_.wall, end_.wall);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback operator_of,
                    int64_t, int64_t) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(begin_.wall, end_.wall, "xpud");
    int32_t number = 0;
    for (const auto& [device, profile] : profiles_) {
      for (const ProfiledCommand& command : profile.commands) {
        if (command.began_ns == 0 || command.ended_ns == 0) continue;
        const Launches::Launch* const launch = launches_.Find(device, command.sequence);
        if (launch == nullptr) continue;
        const libkineto::ITraceActivity* const sender =
            launch->operation == 0 ? nullptr : operator_of(static_cast<int32_t>(launch->operation));
        AddLaunch(*launch, ++number, sender, logger);
        AddWork(command, profile, device, *launch, number, sender, logger);
        queues_.insert({device, command.queue});
      }
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (profiles_.empty()) return nullptr;
    const int device = static_cast<int>(profiles_.begin()->first);
    return std::make_unique<libkineto::DeviceInfo>(device, kFirstDevice + device, "xpud",
                                                   Runtime::Get().device(device).name);
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [device, queue] : queues_)
      infos.emplace_back(device, queue, queue, "stream " + std::to_string(queue));
    return infos;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { operators.push_back(id); }
  void popCorrelationId() override {
    if (!operators.empty()) operators.pop_back();
  }

 private:
  static constexpr int kFirstDevice = 100;  // of the order of tracks: after the CPU's

  void Fail(const absl::Status& status) { errors_.emplace_back("xpud: " + std::string(status.message())); }

  // One of the two clocks may be set while a profile runs: their distance changes evenly from begin to end.
  int64_t WallOf(int64_t monotonic) const {
    const double part = static_cast<double>(monotonic - begin_.monotonic) /
                        static_cast<double>(std::max<int64_t>(end_.monotonic - begin_.monotonic, 1));
    const int64_t before = begin_.wall - begin_.monotonic, after = end_.wall - end_.monotonic;
    return monotonic + before + static_cast<int64_t>(part * static_cast<double>(after - before));
  }

  libkineto::GenericTraceActivity& Add(ActivityType type, const std::string& name, int32_t number,
                                       const libkineto::ITraceActivity* sender) {
    buffer_->emplace_activity(buffer_->span, type, name);
    libkineto::GenericTraceActivity& activity = *buffer_->activities.back();
    activity.id = number;
    activity.linked = sender;
    activity.flow.id = static_cast<uint32_t>(number);
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = type == ActivityType::PRIVATEUSE1_RUNTIME;
    activity.addMetadata("correlation", number);
    return activity;
  }

  // When this process sent a command. Only the moment is known.
  void AddLaunch(const Launches::Launch& launch, int32_t number, const libkineto::ITraceActivity* sender,
                 libkineto::ActivityLogger& logger) {
    libkineto::GenericTraceActivity& activity =
        Add(ActivityType::PRIVATEUSE1_RUNTIME, "xpudSendCommand", number, sender);
    activity.startTime = WallOf(launch.time);
    activity.endTime = activity.startTime + 1;
    activity.device = libkineto::processId();
    activity.resource = activity.threadId = launch.thread;
    activity.log(logger);
  }

  void AddWork(const ProfiledCommand& command, const Profile& profile, uint32_t device,
               const Launches::Launch& launch, int32_t number, const libkineto::ITraceActivity* sender,
               libkineto::ActivityLogger& logger) {
    const ActivityType type = IsCopy(command) ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
    libkineto::GenericTraceActivity& activity = Add(type, NameOf(command, profile), number, sender);
    activity.startTime = WallOf(static_cast<int64_t>(command.began_ns));
    activity.endTime = WallOf(static_cast<int64_t>(command.ended_ns));
    activity.device = static_cast<int32_t>(device);
    activity.resource = static_cast<int32_t>(command.queue);
    activity.addMetadata("device", device);
    activity.addMetadata("stream", command.queue);
    if (command.row != nullptr) activity.addMetadataQuoted("op", OpOf(command));
    activity.addMetadata("bytes", command.bytes);
    activity.addMetadata("kernels", command.launches);
    activity.addMetadata("queued", static_cast<int64_t>(command.began_ns) - launch.time);
    activity.addMetadata("device time", command.device_ns);
    activity.log(logger);
  }

  const bool records_;
  Moment begin_, end_;
  Launches launches_;
  std::map<uint32_t, Profile> profiles_;  // by device
  std::set<std::pair<uint32_t, uint32_t>> queues_;
  std::vector<std::string> errors_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    return std::make_unique<ProfilerSession>(types.contains(ActivityType::CONCURRENT_KERNEL));
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t,
                                                                 const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "xpud";
  const std::set<ActivityType> activities_ = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                              ActivityType::PRIVATEUSE1_RUNTIME};
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

}  // namespace

bool RecordsActivities() { return true; }

}  // namespace xpud::shim

#else

namespace xpud::shim {
bool RecordsActivities() { return false; }
}  // namespace xpud::shim

#endif
