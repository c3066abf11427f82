// Wires xpud-node-agent together. No logic lives here.
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "daemon/telemetry/metrics_server.h"
#include "daemon/telemetry/stderr_sink.h"
#include "deploy/agent/configuration.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/counters.h"
#include "deploy/agent/core/daemon_link.h"
#include "deploy/agent/core/inventory_watch.h"
#include "deploy/agent/core/library_log.h"
#include "deploy/agent/core/reconciler.h"
#include "deploy/agent/grants/grants.h"
#include "deploy/agent/grants/request.h"
#include "deploy/agent/kubernetes/device_plugin.h"
#include "deploy/agent/kubernetes/device_plugin_registration.h"
#include "deploy/agent/kubernetes/dra.h"
#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/metrics.h"
#include "deploy/agent/slurm/job_claim.h"
#include "deploy/agent/slurm/service.h"
#include "deploy/agent/slurm/slurm.h"
#include "proto/base/output.h"
#include "proto/base/status_macros.h"

namespace xpud::agent {
namespace {

constexpr int kFailure = 1, kUsageError = 2;
constexpr char kDefaultConfiguration[] = "/etc/xpud/agent.yaml";
constexpr char kUsage[] =
    R"(xpud-node-agent: lets cluster engines give out parts of this machine's devices as claims of the xpud daemon.

  --config PATH      the configuration (default /etc/xpud/agent.yaml, which documents every key)
  --check            say what is wrong with the configuration, and end
  --ready-fd FD      write a byte to this descriptor when engines are served
  --help, --version

XPUD_NODE_NAME overrides `node`, this machine's name for the engines. SIGTERM leaves all claims in place: a new agent goes on with them.
SIGHUP reads the configuration again, of which the budgets of `grants` change at once; the log names keys that need a restart, or what is
wrong, and then all stays as it was. It also compares claims, engines and files, which otherwise happens each 55 s (with slots, each 15 s).
)";

struct Options {
  std::string config = kDefaultConfiguration;
  int ready_fd = -1;
  bool check = false, help = false, version = false;
};

absl::StatusOr<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--check" || name == "--help" || name == "--version") {
      (name == "--check" ? options.check : name == "--help" ? options.help : options.version) = true;
      continue;
    }
    if (name != "--config" && name != "--ready-fd")
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", name, "; see --help"));
    if (++i == argc) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value; see --help"));
    if (name == "--config") {
      options.config = argv[i];
    } else if (!absl::SimpleAtoi(argv[i], &options.ready_fd) || options.ready_fd < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ready-fd must be the number of a descriptor, not ", argv[i]));
    }
  }
  return options;
}

absl::StatusOr<Configuration> ReadConfigurationAndNode(const Options& options) {
  ASSIGN_OR_RETURN(Configuration configuration, ReadConfiguration(options.config));
  if (const char* node = std::getenv("XPUD_NODE_NAME"); node != nullptr && *node != '\0')
    configuration.node = node;
  return configuration;
}

// The engines that this agent serves.
std::vector<std::string> EnginesOf(const Configuration& configuration) {
  using enum Configuration::KubernetesMode;
  std::vector<std::string> engines;
  if (configuration.kubernetes.mode == kDra) engines.emplace_back(kubernetes::kEngineName);
  if (configuration.kubernetes.mode == kDevicePlugin) engines.emplace_back(kubernetes::kDevicePluginEngine);
  if (configuration.slurm.enabled) engines.emplace_back(slurm::kSlurmEngine);
  if (!configuration.grants.socket.empty()) engines.emplace_back(kGrantsEngine);
  return engines;
}

// Reads the file again, and has the agent do what a running one can change. An invalid file changes nothing.
void Reload(const Options& options, const Configuration& running, Grants* grants, Conditions& conditions) {
  const auto now = ReadConfigurationAndNode(options);
  const std::string reason = absl::StrReplaceAll(std::string(now.status().message()), {{"\n", "; "}});
  conditions.Set("configuration", absl::Status(now.status().code(), reason));
  if (!now.ok())
    return spdlog::warn("configuration_invalid file={} reason=\"{}\"; the old one stays in force",
                        options.config, reason);
  if (grants != nullptr) grants->SetBudgets(now->grants.budgets);
  spdlog::info("configuration_read file={}", options.config);
  if (const auto keys = KeysForRestart(running, *now); !keys.empty())
    spdlog::warn("configuration_needs_restart file={} keys=\"{}\"", options.config,
                 absl::StrJoin(keys, ", "));
}

absl::Status Run(const Options& options, const Configuration& configuration, const sigset_t& signals) {
  Counters counters;
  Conditions conditions;
  conditions.Set("configuration", absl::OkStatus());
  DaemonLink daemon(configuration.socket);
  ClaimKeeper keeper(daemon, counters);

  std::unique_ptr<telemetry::MetricsServer> metrics;
  if (!configuration.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(telemetry::Endpoint endpoint, telemetry::ListenAt(configuration.metrics_listen));
    spdlog::info("metrics address={}", endpoint.address);
    const auto snapshot = [&, engines_served = EnginesOf(configuration)] {
      return [taken = TakeSnapshot(engines_served, keeper, counters, conditions)](telemetry::Format format) {
        return MetricsText(taken, format);
      };
    };
    ASSIGN_OR_RETURN(metrics,
                     telemetry::MetricsServer::Start(std::move(endpoint), snapshot, HealthPages(conditions)));
  }

  std::unique_ptr<slurm::Slurm> slurm;  // outlives the socket that serves it
  std::unique_ptr<Grants> grants;
  std::unique_ptr<kubernetes::Dra> dra;
  std::unique_ptr<kubernetes::DevicePlugin> device_plugin;
  std::vector<Engine*> engines;
  std::unique_ptr<Reconciler> reconciler;
  InventoryWatch inventory(
      daemon, conditions, configuration.kubernetes.sysfs,
      [&](const Inventory&) {
        if (dra != nullptr) dra->Publish();
      },
      [&] { reconciler->Run(); });
  if (configuration.kubernetes.mode == Configuration::KubernetesMode::kDra) {
    ASSIGN_OR_RETURN(
        dra, kubernetes::Dra::Create({.keeper = &keeper,
                                      .conditions = &conditions,
                                      .inventory = &inventory,
                                      .node = configuration.node,
                                      .kubelet = configuration.kubernetes.kubelet,
                                      .cdi = configuration.kubernetes.cdi,
                                      .state = configuration.state,
                                      .api_server = {.url = configuration.kubernetes.api_server,
                                                     .token_file = configuration.kubernetes.token_file,
                                                     .ca_file = configuration.kubernetes.ca_file}}));
    engines.push_back(&dra->engine());
  }
  if (configuration.slurm.enabled) {
    ASSIGN_OR_RETURN(
        slurm, slurm::Slurm::Start({.keeper = &keeper,
                                    .daemon = &daemon,
                                    .jobs = {.scontrol = configuration.slurm.scontrol,
                                             .squeue = configuration.slurm.squeue,
                                             .node = configuration.node},
                                    .limits = {.best_class = configuration.slurm.best_class,
                                               .memory_per_share = configuration.slurm.memory_per_share}}));
    engines.push_back(slurm.get());
  }
  if (configuration.kubernetes.mode == Configuration::KubernetesMode::kDevicePlugin) {
    device_plugin = std::make_unique<kubernetes::DevicePlugin>(
        kubernetes::DevicePlugin::Parts{.keeper = &keeper,
                                        .inventory = &inventory,
                                        .kubelet = configuration.kubernetes.kubelet,
                                        .slots = configuration.kubernetes.slots,
                                        .has_allocated = [&] { reconciler->Run(); }});
    engines.push_back(device_plugin.get());
  }
  if (!configuration.grants.socket.empty()) {
    ASSIGN_OR_RETURN(grants, Grants::Start(keeper, configuration.grants.socket, configuration.grants.budgets,
                                           slurm != nullptr ? slurm::ServiceOf(*slurm) : nullptr));
    engines.push_back(grants.get());
  }
  reconciler = std::make_unique<Reconciler>(keeper, conditions, engines);
  RETURN_IF_ERROR(inventory.Start());
  RETURN_IF_ERROR(reconciler->Start());
  if (dra != nullptr) RETURN_IF_ERROR(dra->Serve());
  // Declared after the inventory, because its server uses it.
  std::unique_ptr<kubernetes::DevicePluginRegistration> registration;
  if (device_plugin != nullptr) {
    ASSIGN_OR_RETURN(registration,
                     kubernetes::DevicePluginRegistration::Start({.plugin = device_plugin.get(),
                                                                  .inventory = &inventory,
                                                                  .counters = &counters,
                                                                  .conditions = &conditions,
                                                                  .kubelet = configuration.kubernetes.kubelet,
                                                                  .slots = configuration.kubernetes.slots}));
  }
  spdlog::info("serving version={} node={}", XPUD_VERSION, configuration.node);
  if (options.ready_fd >= 0 && write(options.ready_fd, "\n", 1) != 1)
    spdlog::warn("ready_fd_unusable fd={}", options.ready_fd);

  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) {
    Reload(options, configuration, grants.get(), conditions);
    reconciler->Run();
  }
  spdlog::info("ending signal={}", signal);
  if (dra != nullptr) dra->EndServing();  // its server uses the inventory
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const auto fail = [](const absl::Status& status, int code) {
    std::fprintf(stderr, "xpud-node-agent: %s\n", std::string(status.message()).c_str());
    return code;
  };
  const auto options = ParseOptions(argc, argv);
  if (!options.ok()) return fail(options.status(), kUsageError);
  if (options->help || options->version) {
    std::fputs(options->help ? kUsage : "xpud-node-agent " XPUD_VERSION "\n", stdout);
    return FinishOutput("xpud-node-agent") ? 0 : kFailure;
  }
  const auto configuration = ReadConfigurationAndNode(*options);
  if (!configuration.ok()) return fail(configuration.status(), kUsageError);
  if (options->check) {
    std::printf("%s: OK\n", options->config.c_str());
    return FinishOutput("xpud-node-agent") ? 0 : kFailure;
  }
  auto logger = std::make_shared<spdlog::logger>("xpud-node-agent", telemetry::StandardErrorSink());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  LimitLibraryLogs();
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, each);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const absl::Status status = Run(*options, *configuration, signals);
  if (status.ok()) return 0;
  spdlog::error("failed error=\"{}\"", std::string(status.message()));
  return kFailure;
}

}  // namespace
}  // namespace xpud::agent

int main(int argc, char** argv) { return xpud::agent::Main(argc, argv); }
