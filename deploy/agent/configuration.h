// The configuration of xpud-node-agent: agent.yaml. Values; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/grants/budget.h"
#include "deploy/agent/grants/local_socket.h"

namespace xpud::agent {

struct Configuration {
  std::string socket = "/run/xpud/xpud.sock";  // the daemon's, for clients; control.sock is beside it
  std::string state = "/var/lib/xpud-agent";   // the folder for what must outlive the agent
  std::string node;                            // as the engines name this machine
  std::string metrics_listen;                  // as telemetry::ListenAt reads it; empty: none

  struct GrantSettings {
    std::string socket = kLocalSocket;  // empty: no grants
    Budgets budgets = {};
    bool operator==(const GrantSettings&) const = default;
  } grants = {};

  enum class KubernetesMode { kOff, kDra, kDevicePlugin };
  struct KubernetesSettings {
    KubernetesMode mode = KubernetesMode::kOff;
    std::string kubelet = "/var/lib/kubelet";
    std::string cdi = "/var/run/cdi";
    std::string sysfs = "/sys";
    std::string api_server;  // empty: as Kubernetes tells a pod
    std::string token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    std::string ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
    uint32_t slots = 10;  // equal parts of a device; of the device plugin
    bool operator==(const KubernetesSettings&) const = default;
  } kubernetes = {};

  struct SlurmSettings {
    bool enabled = false;
    std::string scontrol = "/usr/bin/scontrol";
    std::string squeue = "/usr/bin/squeue";
    std::string best_class = "interactive";         // that jobs may have
    std::optional<uint64_t> memory_per_share = {};  // nullopt: no limit
    bool operator==(const SlurmSettings&) const = default;
  } slurm = {};

  bool operator==(const Configuration&) const = default;
};

// An error in the file. Lines and columns count from 1.
struct Problem {
  int line = 0, column = 0;
  std::string text;  // what was found and what is allowed
};

// Sets what the text says; the rest keeps its defaults. Returns all problems, in the file's order; if there
// are any, the configuration may not be used.
std::vector<Problem> ParseConfiguration(const std::string& text, Configuration& out);
// Reads a file that only its owner may write. Returns NotFound, PermissionDenied, or InvalidArgument with all
// problems, a line each: "PATH:LINE:COLUMN: text", or with what does not go together.
absl::StatusOr<Configuration> ReadConfiguration(const std::string& path);

// The keys whose values differ and that a running agent does not change: "socket", "kubernetes: slots". The
// others, the budgets of `grants`, it takes from `now` at once.
std::vector<std::string> KeysForRestart(const Configuration& before, const Configuration& now);

// The name of this machine, which is the default of `node`.
std::string HostName();

}  // namespace xpud::agent
