// The values of all options. Values; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/confinement/confinement.h"
#include "daemon/executor/api/executor_kind.h"
#include "daemon/tenant/tenant.h"

namespace xpud::config {

// Whose memory with equal contents is there once.
enum class Merge { kTenant, kOff };

// A row of the file's `quotas`: the limit of one tenant's sessions together, on each device.
struct TenantQuota {
  Tenant tenant;
  uint64_t bytes = 0;
  bool operator==(const TenantQuota&) const = default;
};

struct Options {
  std::string socket = "/run/xpud/xpud.sock";
  unsigned socket_mode = 0600;
  std::string device = "auto";  // auto, cpu, gpu or a vendor
  std::string driver;           // libze_xpud.so; empty: beside the binary
  std::string cache_directory;  // compiled kernels; empty: $XDG_CACHE_HOME/xpud or ~/.cache/xpud
  std::string log_level = "info";
  std::string state_directory;  // a folder for claims, which outlive the daemon there; empty: none is kept
  std::string flight_dumps;     // a folder for what crashed sessions did last; empty: none
  std::optional<int> exit_when_idle_seconds;
  executor::ExecutorKind executor = executor::ExecutorKind::kAuto;
  executor::BatchExecutor batch_executor = executor::BatchExecutor::kAuto;
  confinement::Mode confine = confinement::Mode::kOn;
  int command_limit_ms = 60'000;              // for executor processes; 0: no limit
  std::optional<uint64_t> memory_quota;       // bytes per user on each device; default: nine tenths
  std::optional<uint64_t> host_memory_limit;  // bytes per session; default: half of the machine's memory
  // Host memory for what is moved out of devices, of all together. Default: a quarter of the machine's memory
  // for devices with memory of their own, nothing for those whose memory is the machine's.
  std::optional<uint64_t> move_out;
  std::string move_out_folder;             // for files with what has no room there; empty: none
  std::optional<uint64_t> move_out_files;  // bytes of these files, reserved at the start
  uint32_t turn_limit_ms = 10'000;  // the longest turn of a tenant whose memory does not fit beside others'
  Merge merge = Merge::kTenant;     // which equal memory is there once
  int user_clients = 768;           // connections per user
  std::string gateway_user;         // may set the tenant of a session; empty: only the daemon's user and root
  std::string operator_group;       // may use control.sock, besides the daemon's user and root
  int kernel_limit = 4096;          // kept for each device
  int stall_after_seconds = 10;     // a session without progress is an event; 0: never
  uint32_t least_share = 200;       // of each class with work, in hundredths of a per cent of a device's time
  uint64_t cache_limit = uint64_t{1} << 30;  // bytes of compiled kernels on disk
  std::string metrics_address;               // HOST:PORT, PORT or unix:PATH; empty: no metrics
  std::vector<TenantQuota> quotas;
  bool standby_executor = false;
  bool test_kernels = false;  // tests: clients may run kernels that fault or do not end
  bool asynchronous = false;  // tests: treat the CPU device like a GPU
  int test_devices = 0;       // tests: how many CPU devices the driver exposes; 0: as XPUD_CPU_DEVICES says
  std::optional<uint64_t> test_device_memory;  // tests: bytes that each device says to have, if it has more
  // Options of the command line only.
  std::string config;       // the file; "-PATH": may be missing; empty: none
  int ready_fd = -1;        // gets one byte when clients can connect
  bool background = false;  // detach from the caller's session
  bool help = false;
  bool version = false;
};

}  // namespace xpud::config
