// Wires the daemon together: devices, lanes, listener, control plane. No logic lives here.
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/compiler/compile_desk.h"
#include "daemon/compiler/compile_process.h"
#include "daemon/config/configuration.h"
#include "daemon/config/user.h"
#include "daemon/confinement/confinement.h"
#include "daemon/executor/devices.h"
#include "daemon/executor/process/executor_main.h"
#include "daemon/executor/process/spawner.h"
#include "daemon/lane/lanes.h"
#include "daemon/main/reloader.h"
#include "daemon/memory/moved_out_file.h"
#include "daemon/memory/residency.h"
#include "daemon/scheduler/tenant_shares.h"
#include "daemon/service/claim_desk.h"
#include "daemon/service/claim_doors.h"
#include "daemon/service/claim_store.h"
#include "daemon/service/control.h"
#include "daemon/service/flight_dumps.h"
#include "daemon/service/handed_sockets.h"
#include "daemon/service/listener.h"
#include "daemon/service/socket_file.h"
#include "daemon/stream/device_comparer.h"
#include "daemon/stream/merger.h"
#include "daemon/telemetry/journal.h"
#include "daemon/telemetry/log_ring.h"
#include "daemon/telemetry/metrics.h"
#include "daemon/telemetry/metrics_server.h"
#include "daemon/telemetry/notifier.h"
#include "daemon/telemetry/stderr_sink.h"
#include "daemon/telemetry/watchdog.h"
#include "kernels/compiler/kernel_compiler.h"
#include "kernels/compiler/object_cache.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/output.h"
#include "proto/base/status_macros.h"
#include "proto/transport/barrier.h"

namespace xpud {
namespace {

using config::Options;

constexpr int kFailure = 1, kUsageError = 2;

// Starts logging. Returns the list that keeps the last lines.
std::shared_ptr<telemetry::LogLines> StartLogging(const std::string& level) {
  auto lines = std::make_shared<telemetry::LogLines>(telemetry::kMaxLogLines);
  auto logger = std::make_shared<spdlog::logger>("xpud", telemetry::StandardErrorSink());
  logger->set_formatter(telemetry::LogFormatter());
  logger->sinks().push_back(telemetry::KeepLines(lines));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  return lines;
}

// Starts a session of its own, so that the terminal's signals do not reach the daemon. REQUIRES: no other
// thread exists.
void Detach() {
  if (fork() != 0) _exit(0);
  setsid();
}

// The listener reads SIGINT, SIGTERM and SIGHUP from a descriptor. Every thread inherits the mask.
void BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // writing to files fails with EFBIG
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
}

// A session takes two descriptors, three for each device that it opened, and three more if that is a GPU.
// Each host memory takes one, and one more for each GPU.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string CacheDirectory(const Options& options) {
  if (!options.cache_directory.empty()) return options.cache_directory;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return absl::StrCat(cache, "/xpud");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return absl::StrCat(home, "/.cache/xpud");
  return "";
}

// Creates and checks the kernel cache while folders can still be created. If the user's own cache cannot be
// used, kernels are compiled anew at each start.
absl::StatusOr<std::string> PrepareCache(const Options& options) {
  std::string directory = CacheDirectory(options);
  if (directory.empty()) return directory;
  absl::Status opened = kernels::ObjectCache::Open(directory).status();
  if (opened.ok()) return directory;
  if (!options.cache_directory.empty() || !absl::IsPermissionDenied(opened)) return opened;
  spdlog::warn("kernel_cache_unusable reason=\"{}\"", std::string(opened.message()));
  return "";
}

std::optional<uint32_t> GatewayUid(const std::string& user) {
  const auto uid = ParseUser(user);
  if (!user.empty() && !uid) spdlog::warn("gateway_user_unknown name=\"{}\"", user);
  return uid;
}

// The control socket, if a group may use it: a confined daemon cannot give a file to a group.
absl::StatusOr<UniqueFd> OperatorsSocket(const Options& options) {
  const auto group = ParseGroup(options.operator_group);
  if (!group) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no group ", options.operator_group, ", which operator-group names"));
  }
  return service::ListenForGroup(service::ControlPath(options.socket), *group);
}

// Host memory for what leaves one of `devices` devices. Without an option, memory leaves a device for the
// machine's memory only if it has other memory.
uint64_t MoveOutLimit(const Options& options, const executor::Device& device, size_t devices) {
  if (options.move_out) return *options.move_out / devices;
  if (device.properties().kind != "gpu") return 0;
  struct sysinfo machine = {};
  if (sysinfo(&machine) != 0) return 0;
  return uint64_t{machine.totalram} * machine.mem_unit / 4 / devices;
}

// Divides the file (null: there is none) among the devices that have host memory for what leaves.
absl::StatusOr<std::vector<memory::Residency::Options>> DivideMoveOut(
    const Options& options, const std::vector<std::unique_ptr<executor::Device>>& devices,
    const std::shared_ptr<const memory::MovedOutFile>& file) {
  std::vector<memory::Residency::Options> moves(devices.size());
  uint64_t users = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    moves[i].host_limit = MoveOutLimit(options, *devices[i], devices.size());
    users += moves[i].host_limit != 0 ? 1 : 0;
  }
  if (file == nullptr) return moves;
  if (users == 0) {
    return absl::InvalidArgumentError(
        "move-out-folder: no device moves memory out; set move-out, which is 0 for devices whose memory is "
        "the machine's, such as the CPU");
  }
  const uint64_t part =
      *options.move_out_files / users / memory::HostStore::kSlotBytes * memory::HostStore::kSlotBytes;
  uint64_t at = 0;
  for (memory::Residency::Options& each : moves) {
    if (each.host_limit == 0) continue;
    if (each.host_limit < memory::HostStore::kMinBytesWithFiles) {
      return absl::InvalidArgumentError(absl::StrCat(
          "move-out: a device has ", BytesText(each.host_limit), "; with move-out-folder each needs ",
          BytesText(memory::HostStore::kMinBytesWithFiles), " or more"));
    }
    each.files = {file, at, part};
    at += part;
  }
  return moves;
}

// While the folder can be opened: the daemon is not confined yet. What is forked later does not keep the
// file.
absl::StatusOr<std::shared_ptr<const memory::MovedOutFile>> MakeMovedOutFile(const Options& options) {
  if (options.move_out_folder.empty()) return nullptr;
  auto file = memory::MovedOutFile::Create(options.move_out_folder, *options.move_out_files);
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat("move-out-folder: ", file.status().message()));
  spdlog::info("moved_out_file folder={} bytes={}", options.move_out_folder, *options.move_out_files);
  return file;
}

std::unique_ptr<stream::Merger> MakeMerger(const stream::DeviceState& state, uint32_t index) {
  return std::make_unique<stream::Merger>(
      *state.pool, std::make_unique<stream::DeviceComparer>(*state.device, *state.library),
      [index](const absl::Status& trouble, bool goes_on) {
        spdlog::warn("merging_failed device={} error=\"{}\" note=\"{}\"", index,
                     std::string(trouble.message()),
                     goes_on ? "it goes on in a minute" : "equal memory is not merged any more");
      });
}

absl::StatusOr<std::vector<stream::DeviceState>> OpenDevices(
    const Options& options, executor::DevicePlan plan, const Reloader& reloader,
    const std::string& cache_directory, executor::process::Spawner* spawner,
    const std::shared_ptr<const memory::MovedOutFile>& moved_out_file, compiler::CompileDesk& compile_desk,
    const std::function<void()>& wake) {
  ASSIGN_OR_RETURN(auto devices, executor::OpenDevices(
                                     {.plan = std::move(plan),
                                      .driver_library = options.driver,
                                      .device = options.device,
                                      .asynchronous = options.asynchronous,
                                      .command_limit = std::chrono::milliseconds(options.command_limit_ms),
                                      .most_memory = options.test_device_memory.value_or(UINT64_MAX),
                                      .standby = options.standby_executor,
                                      .batch_executor = options.batch_executor,
                                      .wake = wake,
                                      .spawner = spawner}));
  ASSIGN_OR_RETURN(std::vector<memory::Residency::Options> moves,
                   DivideMoveOut(options, devices, moved_out_file));
  std::map<kernels::CodeTarget, std::shared_ptr<kernels::KernelCompiler>> compilers;
  std::vector<stream::DeviceState> states;
  for (auto& device : devices) {
    stream::DeviceState state;
    const executor::DeviceProperties& properties = device->properties();
    spdlog::info("device index={} name=\"{}\" kind={} vendor={} memory_bytes={} compute_units={}",
                 states.size(), properties.name, properties.kind, properties.vendor, properties.total_memory,
                 properties.compute_units);
    kernels::KernelLibrary::Options library = {
        .target = properties.target,
        .cache_directory = cache_directory,
        .workers = static_cast<int>(properties.compute_units),
        .on_ready = wake,
        .float_operations = static_cast<double>(properties.peak.float_operations),
        .half_operations = static_cast<double>(properties.peak.half_operations),
        .has_doubles = properties.has_doubles,
        .elsewhere = !properties.synchronous,
        .most_groups = properties.most_groups,
        .test_kernels = options.test_kernels};
    library.forget = [raw = device.get()](auto& kernels) { raw->Forget(kernels); };
    if (properties.target == kernels::Target::kNvptx) {
      library.processor = properties.processor;
      library.assemble = [raw = device.get()](const std::string& text) { return raw->Assemble(text); };
      library.run_host_kernel = [raw = device.get()](const kernels::Launch& launch) {
        return raw->RunHostKernel(launch);
      };
    }
    // Devices that run the same code share what is compiled.
    const kernels::CodeTarget code(library.target, library.processor, library.has_doubles);
    auto& compiler = compilers[code];
    if (compiler == nullptr) {
      ASSIGN_OR_RETURN(compiler, kernels::KernelCompiler::Create(
                                     {.target = code,
                                      .assembles = library.assemble != nullptr,
                                      .cache_directory = library.cache_directory,
                                      .cache_bytes = options.cache_limit,
                                      .elsewhere = &compile_desk,
                                      .on_cache_failure = [cache_directory](const absl::Status& why) {
                                        spdlog::warn(
                                            "kernel_cache_failed folder={} error=\"{}\" note=\"kernels are "
                                            "compiled again at the next start\"",
                                            cache_directory, std::string(why.message()));
                                      }}));
    }
    library.compiler = compiler;
    ASSIGN_OR_RETURN(state.library, kernels::KernelLibrary::Create(library));
    const auto index = static_cast<uint32_t>(states.size());
    memory::Residency::Options& move = moves[index];
    move.wake = wake;
    move.on_trouble = [index](const absl::Status& trouble) {
      spdlog::warn("memory_move_failed device={} error=\"{}\" note=\"it is tried again\"", index,
                   std::string(trouble.message()));
    };
    move.on_refusal = [index](const absl::Status& why) {
      spdlog::warn("memory_refused device={} error=\"{}\"", index, std::string(why.message()));
    };
    state.Use(std::move(device), index, std::move(move));
    if (options.merge != config::Merge::kOff) state.merger = MakeMerger(state, index);
    reloader.SetUp(state);
    states.push_back(std::move(state));
  }
  return states;
}

// REQUIRES: this is the only thread. Returns null if no executor process can be needed.
absl::StatusOr<std::unique_ptr<executor::process::Spawner>> StartSpawner(const Options& options,
                                                                         const executor::DevicePlan& plan) {
  if (!plan.needs_spawner()) return nullptr;
  return executor::process::Spawner::Start(
      {options.driver, std::string(confinement::WordOf(options.confine))}, [&] {
        std::string in_force;
        confinement::ConfineCalls(options.confine, confinement::kSpawner, in_force);
      });
}

// REQUIRES: this is the only thread. The process needs libraries, and nothing else.
absl::StatusOr<std::unique_ptr<compiler::CompileProcess>> StartCompileProcess(const Options& options) {
  return compiler::CompileProcess::Start([&] {
    std::string in_force;
    confinement::FilesOptions files;
    files.reads_only_libraries = true;
    confinement::ConfineFiles(options.confine, files, in_force);
    confinement::ConfineCalls(options.confine, confinement::kCompiler, in_force);
  });
}

// Confines the files of both processes, and starts the spawner if one is needed; then takes its rights from
// the daemon, whose signals must still reach it. `files` without processes and signals.
absl::StatusOr<std::unique_ptr<executor::process::Spawner>> ConfineAndSpawn(const Options& options,
                                                                            const executor::DevicePlan& plan,
                                                                            confinement::FilesOptions files,
                                                                            std::string& in_force) {
  std::string first;
  const bool both = plan.needs_spawner();
  files.processes = confinement::FilesOptions::Processes::kAll;
  files.keeps_signals = true;
  if (both) confinement::ConfineFiles(options.confine, files, first);
  ASSIGN_OR_RETURN(auto spawner, StartSpawner(options, plan));
  files.processes = confinement::FilesOptions::Processes::kNone;
  files.keeps_signals = !both;
  confinement::ConfineFiles(options.confine, files, in_force);
  return spawner;
}

bool HasExecutors(const std::vector<stream::DeviceState>& devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [](const auto& state) { return state.device->properties().replaceable; });
}

// Drops devices that clients could not name.
void DropUnusable(std::vector<stream::DeviceState>& devices) {
  if (devices.size() <= transport::kMaxDevices) return;
  spdlog::warn("devices_unused found={} allowed={}", devices.size(), transport::kMaxDevices);
  devices.erase(devices.begin() + transport::kMaxDevices, devices.end());
}

// `registry`, `dumps` (null: none are written) and `listener` must outlive the lanes.
lane::Lanes::Options LaneOptions(const Options& options, const session::Registry& registry,
                                 service::FlightDumps* dumps, service::Listener& listener) {
  lane::Lanes::Options lanes;
  lanes.grant_of = [&claims = registry.claims()](const Tenant& tenant) { return claims.GrantOf(tenant); };
  lanes.policy = scheduler::TenantShares::Maker(options.least_share);
  lanes.stall_ns = Reloader::StallAfterNs(options);
  if (dumps != nullptr)
    lanes.on_crash = [dumps](uint32_t device, const records::EndedSession& session) {
      dumps->Add(device, session);
    };
  lanes.on_close = [&listener](uint64_t session) { listener.HangUp(session); };
  return lanes;
}

// `doors`, `sensors` and `listener` must outlive the desk.
service::ClaimDesk::Options ClaimOptions(service::ClaimDoors& doors, service::SensorSampler& sensors,
                                         std::unique_ptr<service::ClaimStore> store,
                                         service::Listener& listener) {
  return {.doors = &doors,
          .sensors = &sensors,
          .store = std::move(store),
          .open_door = [&listener](service::Door door) { listener.AddDoor(std::move(door)); },
          .close_doors = [&listener](const std::string& claim) { listener.CloseDoorsOf(claim); }};
}

// Called after the spawner was started, which must not inherit the socket, and before the daemon is confined.
// Returns nullopt if no metrics are served.
absl::StatusOr<std::optional<telemetry::Endpoint>> ListenForMetrics(const Options& options) {
  if (options.metrics_address.empty()) return std::nullopt;
  const std::string path(telemetry::UnixPathOf(options.metrics_address));
  if (!path.empty()) RETURN_IF_ERROR(service::RemoveStaleSocket(path));
  ASSIGN_OR_RETURN(telemetry::Endpoint endpoint, telemetry::ListenAt(options.metrics_address));
  if (path.empty())
    spdlog::info("metrics url=http://{}/metrics", endpoint.address);
  else
    spdlog::info("metrics socket={}", path);
  return endpoint;
}

absl::StatusOr<std::unique_ptr<telemetry::MetricsServer>> ServeMetrics(
    std::optional<telemetry::Endpoint> endpoint, service::Control& control) {
  if (!endpoint) return nullptr;
  return telemetry::MetricsServer::Start(*std::move(endpoint), [&control] {
    const auto snapshot = std::make_shared<v1::GetStatusResponse>();
    control.TakeSnapshot(*snapshot);
    return [snapshot](telemetry::Format format) { return telemetry::MetricsText(*snapshot, format); };
  });
}

// A private daemon, which a client started, does not talk to the client's service manager.
telemetry::Notifier FindServiceManager(const Options& options) {
  auto notifier = telemetry::Notifier::FromEnvironment();
  if (notifier.ok() && !options.background) return *std::move(notifier);
  if (!notifier.ok()) spdlog::warn("service_manager error=\"{}\"", std::string(notifier.status().message()));
  return {};
}

absl::StatusOr<std::unique_ptr<telemetry::Watchdog>> StartWatchdog(const telemetry::Notifier& notifier,
                                                                   lane::Lanes& lanes) {
  if (!notifier.watchdog()) return nullptr;
  return telemetry::Watchdog::Start(notifier, *notifier.watchdog(),
                                    [&lanes](std::function<void()> done) { lanes.Ping(std::move(done)); });
}

// Tells the service manager, and who waits at --ready-fd.
void SayReady(const Options& options, const telemetry::Notifier& notifier, size_t devices) {
  notifier.Notify(absl::StrCat("READY=1\nSTATUS=Serving ", devices, devices == 1 ? " device" : " devices",
                               " at ", options.socket));
  if (options.ready_fd < 0) return;
  if (write(options.ready_fd, "1", 1) != 1)
    spdlog::warn("ready_fd fd={} error=\"cannot be written\"", options.ready_fd);
  close(options.ready_fd);
}

// An executor keeps access to its device, and loses the cache and the socket.
void ConfineExecutor(const executor::process::ServeArguments& arguments) {
  const auto mode = confinement::ModeOf(arguments.confine).value_or(confinement::Mode::kOn);
  std::string in_force;
  confinement::ConfineFiles(mode,
                            {.cache_directory = "",
                             .socket_directory = "",
                             .driver_library = arguments.driver_library,
                             .processes = confinement::FilesOptions::Processes::kOwn},
                            in_force);
  confinement::ConfineCalls(mode, confinement::kExecutor, in_force);
}

absl::Status Run(const config::CommandLine& line, const config::Configuration& configuration,
                 std::shared_ptr<telemetry::LogLines> log) {
  const Options& options = configuration.options;
  // Read by the CPU's driver, here and in executor processes.
  if (options.test_devices > 0) setenv("XPUD_CPU_DEVICES", absl::StrCat(options.test_devices).c_str(), 1);
  Reloader reloader(line, configuration);
  const telemetry::Notifier notifier = FindServiceManager(options);
  notifier.Notify("STATUS=Opening devices");
  std::function<void()> reload;
  std::function<absl::StatusOr<std::unique_ptr<service::UserView>>(const Tenant&, UniqueFd)> show;
  ASSIGN_OR_RETURN(auto handed, service::TakeHandedSockets(options.socket));
  const bool is_private = options.exit_when_idle_seconds.has_value() && !handed.clients.valid();
  session::Registry registry;
  ASSIGN_OR_RETURN(auto listener,
                   service::Listener::Create(
                       {.socket_path = options.socket,
                        .socket_mode = options.socket_mode,
                        .gateway_uid = GatewayUid(options.gateway_user),
                        .on_hangup = [&] { reload(); },
                        .show = [&](const Tenant& user, UniqueFd fd) { return show(user, std::move(fd)); }},
                       registry.claims(), std::move(handed.clients)));
  listener->SetLimits(Reloader::LimitsOf(options));
  const bool has_operators = !handed.control.valid() && !options.operator_group.empty();
  if (has_operators) {
    ASSIGN_OR_RETURN(handed.control, OperatorsSocket(options));
  }
  const absl::Cleanup remove_control = [&] {
    if (has_operators) unlink(service::ControlPath(options.socket).c_str());
  };

  ASSIGN_OR_RETURN(const std::string cache_directory, PrepareCache(options));
  const std::string folder = std::filesystem::path(options.socket).parent_path().string();
  std::unique_ptr<service::FlightDumps> dumps;
  if (!options.flight_dumps.empty()) {
    ASSIGN_OR_RETURN(dumps, service::FlightDumps::Open(options.flight_dumps, registry.events()));
  }
  service::ClaimDoors doors(folder);
  std::unique_ptr<service::ClaimStore> store;
  if (!options.state_directory.empty()) {
    ASSIGN_OR_RETURN(store, service::ClaimStore::Open(options.state_directory));
  }
  std::string in_force;
  ASSIGN_OR_RETURN(executor::DevicePlan plan,
                   executor::PlanDevices(options.driver, options.device, options.executor));
  RETURN_IF_ERROR(executor::PrepareDrivers(options.driver, plan));
  ASSIGN_OR_RETURN(const auto moved_out_file, MakeMovedOutFile(options));
  ASSIGN_OR_RETURN(auto compile_process, StartCompileProcess(options));
  ASSIGN_OR_RETURN(auto spawner, ConfineAndSpawn(options, plan,
                                                 {.cache_directory = cache_directory,
                                                  .socket_directory = folder,
                                                  .driver_library = options.driver,
                                                  .configuration = line.config_path(),
                                                  .dump_directory = options.flight_dumps,
                                                  .state_directory = options.state_directory,
                                                  .door_directories = doors.Roots()},
                                                 in_force));

  ASSIGN_OR_RETURN(auto compile_desk, compiler::CompileDesk::Start(*compile_process));
  if (dumps != nullptr) RETURN_IF_ERROR(dumps->Start());
  ASSIGN_OR_RETURN(auto endpoint, ListenForMetrics(options));
  std::atomic<lane::Lanes*> lanes_to_wake{nullptr};
  const auto wake = [&] {
    if (lane::Lanes* lanes = lanes_to_wake.load()) lanes->WakeAll();
  };
  ASSIGN_OR_RETURN(auto devices, OpenDevices(options, std::move(plan), reloader, cache_directory,
                                             spawner.get(), moved_out_file, *compile_desk, wake));
  if (!HasExecutors(devices)) spawner.reset();
  DropUnusable(devices);
  const size_t device_count = devices.size();
  ASSIGN_OR_RETURN(auto lanes, lane::Lanes::Create(std::move(devices), registry,
                                                   LaneOptions(options, registry, dumps.get(), *listener)));
  lanes_to_wake.store(lanes.get());
  confinement::ConfineCalls(options.confine, confinement::kDaemon, in_force);
  spdlog::info("confined {}", in_force);
  service::SensorSampler sensors(service::DevicesOf(*lanes));
  ASSIGN_OR_RETURN(auto claims, service::ClaimDesk::Start(
                                    *lanes, ClaimOptions(doors, sensors, std::move(store), *listener)));
  ASSIGN_OR_RETURN(auto control, service::Control::Start(*lanes,
                                                         {.client_socket = options.socket,
                                                          .sensors = &sensors,
                                                          .claims = claims.get(),
                                                          .compiles = compile_desk.get(),
                                                          .private_daemon = is_private,
                                                          .cache_directory = cache_directory,
                                                          .configuration = [&] { return reloader.Values(); },
                                                          .log = std::move(log)},
                                                         std::move(handed.control)));
  ASSIGN_OR_RETURN(auto metrics, ServeMetrics(std::move(endpoint), *control));

  spdlog::info("serving version={} socket={}", XPUD_VERSION, options.socket);
  ASSIGN_OR_RETURN(auto watchdog, StartWatchdog(notifier, *lanes));
  SayReady(options, notifier, device_count);
  show = [&](const Tenant& user, UniqueFd connection) {
    return service::UserView::Start(*control, *lanes, user, std::move(connection));
  };
  reload = [&] { reloader.Reload(*lanes, *listener, notifier); };
  listener->Serve(*lanes);
  spdlog::info("ending");
  notifier.Notify("STOPPING=1\nSTATUS=Ending sessions");
  watchdog.reset();
  metrics.reset();
  if (const auto path = telemetry::UnixPathOf(options.metrics_address); !path.empty())
    unlink(std::string(path).c_str());
  control.reset();
  claims.reset();
  lanes_to_wake.store(nullptr);
  compile_desk->Stop();
  lanes.reset();
  doors.RemoveRoots();
  return absl::OkStatus();
}

int RefuseUsage(const absl::Status& why) {
  for (const auto reason : absl::StrSplit(why.message(), '\n'))
    std::fprintf(stderr, "xpud: %s\n", std::string(reason).c_str());
  return kUsageError;
}

int Main(int argc, char** argv) {
  const auto line = config::CommandLine::Parse({argv + 1, static_cast<size_t>(argc - 1)});
  if (!line.ok()) return RefuseUsage(line.status());
  if (line->options().help || line->options().version) {
    std::fputs(line->options().help ? config::UsageText().c_str() : "xpud " XPUD_VERSION "\n", stdout);
    return FinishOutput("xpud") ? 0 : kFailure;
  }
  const auto configuration = line->Complete();
  if (!configuration.ok()) return RefuseUsage(configuration.status());
  if (configuration->options.background) Detach();
  auto log = StartLogging(configuration->options.log_level);
  LogOverridden(*configuration);
  BlockSignals();
  RaiseFileLimit();
  transport::AllowRemoteBarriers();  // costs milliseconds once there are other threads
  if (const absl::Status status = Run(*line, *configuration, std::move(log)); !status.ok()) {
    spdlog::error("failed error=\"{}\"", std::string(status.message()));
    return kFailure;
  }
  return 0;
}

}  // namespace
}  // namespace xpud

int main(int argc, char** argv) {
  using xpud::executor::process::ServeArguments;
  if (const auto serve = ServeArguments::FromArgv({argv, static_cast<size_t>(argc)})) {
    (void)xpud::StartLogging("warn");  // the daemon logs what the process finds at its start
    xpud::ConfineExecutor(*serve);
    xpud::executor::process::ServeDevice(*serve);
  }
  return xpud::Main(argc, argv);
}
