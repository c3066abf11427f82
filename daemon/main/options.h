// The daemon's command line.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/confinement/confinement.h"
#include "daemon/executor/devices.h"

namespace xpud {

struct Options {
  std::string socket = "/run/xpud/xpud.sock";
  unsigned socket_mode = 0600;
  std::string device = "auto";  // auto, cpu, gpu or a vendor
  std::string driver;           // libze_xpud.so; empty: beside the binary
  std::string cache_directory;  // compiled kernels; empty: $XDG_CACHE_HOME/xpud or ~/.cache/xpud
  std::string log_level = "info";
  std::optional<int> exit_when_idle_seconds;
  executor::ExecutorKind executor = executor::ExecutorKind::kAuto;
  confinement::Mode confine = confinement::Mode::kOn;
  int command_limit_ms = 60'000;            // of executor processes; 0: none
  std::optional<int> memory_quota_mb;       // of a user, on each device; default: nine tenths
  std::optional<int> host_memory_limit_mb;  // of a session; default: half of the machine's memory
  std::optional<int> user_clients;          // that a user may have connected; default: three quarters of all
  std::string gateway_user;           // may say for which tenant it asks; empty: no other user than ours
  std::optional<int> kernel_limit;    // that are kept for each device
  std::optional<int> cache_limit_mb;  // of compiled kernels on disk
  std::string metrics_address;        // HOST:PORT or PORT; empty: no metrics
  bool standby_executor = false;
  bool test_kernels = false;    // tests: clients may run kernels that fault or do not end
  int ready_fd = -1;            // gets one byte when clients can connect
  bool asynchronous = false;    // tests: treat the CPU device like a GPU
  bool background = false;      // detach from the caller's session
  bool without_checks = false;  // known to be (a build of the preset of that name only)
  bool help = false;
  bool version = false;
};

extern const char kUsage[];

// InvalidArgument names the argument that is wrong and what is allowed.
absl::StatusOr<Options> ParseOptions(std::span<char* const> arguments);

}  // namespace xpud
