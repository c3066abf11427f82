#include "daemon/main/options.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/checks.h"

namespace xpud {
namespace {

absl::Status ParseInt(const std::string& value, int lowest, int& out) {
  if (absl::SimpleAtoi(value, &out) && out >= lowest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", value, "' is no integer of at least ", lowest));
}

absl::Status ParseMode(const std::string& value, unsigned& out) {
  constexpr unsigned kLargest = 0777;
  out = 0;
  for (const char c : value) {
    if (c < '0' || c > '7')
      return absl::InvalidArgumentError(absl::StrCat("'", value, "' is no octal mode such as 0660"));
    out = std::min(out * 8 + static_cast<unsigned>(c - '0'), kLargest + 1);
  }
  return out != 0 && out <= kLargest
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("mode ", value, " is outside 0001 to 0777"));
}

absl::Status ParseExecutor(const std::string& value, executor::ExecutorKind& out) {
  if (value == "auto") {
    out = executor::ExecutorKind::kAuto;
  } else if (value == "thread") {
    out = executor::ExecutorKind::kThread;
  } else if (value == "process") {
    out = executor::ExecutorKind::kProcess;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("'", value, "' is none of: auto, thread, process"));
  }
  return absl::OkStatus();
}

absl::Status ParseConfine(const std::string& value, confinement::Mode& out) {
  const auto mode = confinement::ModeOf(value);
  if (!mode) return absl::InvalidArgumentError(absl::StrCat("'", value, "' is none of: on, log, off"));
  out = *mode;
  return absl::OkStatus();
}

struct Argument {
  std::string_view name;
  std::function<absl::Status(Options&, const std::string&)> set;
};

const std::array<Argument, 18>& Arguments() {
  static const auto* const arguments = new std::array<Argument, 18>{{
      {"--socket",
       [](Options& o, const std::string& v) {
         o.socket = v;
         return absl::OkStatus();
       }},
      {"--socket-mode", [](Options& o, const std::string& v) { return ParseMode(v, o.socket_mode); }},
      {"--device",
       [](Options& o, const std::string& v) {
         o.device = v;
         return absl::OkStatus();
       }},
      {"--driver",
       [](Options& o, const std::string& v) {
         o.driver = v;
         return absl::OkStatus();
       }},
      {"--cache-dir",
       [](Options& o, const std::string& v) {
         o.cache_directory = v;
         return absl::OkStatus();
       }},
      {"--log-level",
       [](Options& o, const std::string& v) {
         o.log_level = v;
         return absl::OkStatus();
       }},
      {"--exit-when-idle",
       [](Options& o, const std::string& v) {
         int seconds = 0;
         absl::Status status = ParseInt(v, 0, seconds);
         o.exit_when_idle_seconds = seconds;
         return status;
       }},
      {"--executor", [](Options& o, const std::string& v) { return ParseExecutor(v, o.executor); }},
      {"--confine", [](Options& o, const std::string& v) { return ParseConfine(v, o.confine); }},
      {"--command-limit",
       [](Options& o, const std::string& v) { return ParseInt(v, 0, o.command_limit_ms); }},
      {"--memory-quota",
       [](Options& o, const std::string& v) { return ParseInt(v, 0, o.memory_quota_mb.emplace()); }},
      {"--host-memory-limit",
       [](Options& o, const std::string& v) { return ParseInt(v, 0, o.host_memory_limit_mb.emplace()); }},
      {"--user-clients",
       [](Options& o, const std::string& v) { return ParseInt(v, 1, o.user_clients.emplace()); }},
      {"--gateway-user",
       [](Options& o, const std::string& v) {
         o.gateway_user = v;
         return absl::OkStatus();
       }},
      {"--kernel-limit",
       [](Options& o, const std::string& v) { return ParseInt(v, 256, o.kernel_limit.emplace()); }},
      {"--cache-limit",
       [](Options& o, const std::string& v) { return ParseInt(v, 1, o.cache_limit_mb.emplace()); }},
      {"--metrics-listen",
       [](Options& o, const std::string& v) {
         o.metrics_address = v;
         return absl::OkStatus();
       }},
      {"--ready-fd", [](Options& o, const std::string& v) { return ParseInt(v, 0, o.ready_fd); }},
  }};
  return *arguments;
}

bool SetFlag(std::string_view name, Options& options) {
  if (name == "--background") return options.background = true;
  if (name == "--asynchronous") return options.asynchronous = true;
  if (name == "--standby-executor") return options.standby_executor = true;
  if (name == "--test-kernels") return options.test_kernels = true;
  if (!kChecked && name == "--without-checks") return options.without_checks = true;
  if (name == "--help") return options.help = true;
  if (name == "--version") return options.version = true;
  return false;
}

}  // namespace

const char kUsage[] = R"(xpud: owns this machine's accelerators and serves them to clients.

  --socket PATH          where clients connect (default /run/xpud/xpud.sock); control.sock lies beside it
  --socket-mode MODE     octal mode of the socket (default 0600)
  --device WHICH         auto (every device), cpu, gpu, or a vendor: cpu, cuda, intel
  --driver PATH          libze_xpud.so (default: beside this binary)
  --cache-dir PATH       compiled kernels (default $XDG_CACHE_HOME/xpud or ~/.cache/xpud)
  --exit-when-idle SEC   end this long after the last client
  --log-level LEVEL      trace, debug, info, warn, error
  --executor WHICH       who calls the device's driver: auto (a process for each GPU, a thread for the CPU
                         device), thread, process
  --command-limit MS     a command on a device with an executor process may run this long, then its session
                         is closed (default 60000; 0: any time)
  --memory-quota MB      the processes of a user may hold this much of each device together, unless `xpuctl quota`
                         says otherwise (default nine tenths of the device)
  --host-memory-limit MB a session may share this much of its memory with its devices, which keeps it in RAM
                         (default half of this machine's memory)
  --user-clients COUNT   a user may have so many clients connected (default 768, of 1024 places in all)
  --gateway-user USER    whose xpud-gateway may say for which of its tenants it asks; where there is no such user, nobody's
                         (default: only the daemon's own user's, and root's)
  --kernel-limit COUNT   keep so many compiled kernels for each device, those that were used last (default 4096)
  --cache-limit MB       keep so much of them on disk, what was used last (default 1024)
  --metrics-listen [HOST:]PORT
                         serve metrics for Prometheus over HTTP at /metrics, to whoever can connect there: on
                         127.0.0.1 unless HOST, an address, says otherwise (default: not at all)
  --confine MODE         on: give up all rights but those that serving takes (default); log: only let the
                         kernel's log name what would be refused; off
  --standby-executor     keep a second executor process ready, which costs memory on a GPU and makes the
                         replacement of a lost one quicker
  --test-kernels         let clients run kernels that fault or do not end (for tests)
  --asynchronous         treat the CPU device like a GPU, which works on its own (for tests)
  --background           detach from the caller
  --ready-fd FD          write one byte there when clients can connect
  --help, --version
)";

absl::StatusOr<Options> ParseOptions(std::span<char* const> arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (SetFlag(name, options)) continue;
    const Argument* known = nullptr;
    for (const Argument& argument : Arguments()) {
      if (argument.name == name) known = &argument;
    }
    if (known == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", std::string(name), "; see --help"));
    if (i + 1 == arguments.size())
      return absl::InvalidArgumentError(absl::StrCat(std::string(name), " needs a value; see --help"));
    if (absl::Status status = known->set(options, arguments[++i]); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(name), ": ", status.message()));
    }
  }
  if (kChecked || options.without_checks || options.help || options.version) return options;
  return absl::InvalidArgumentError(
      "this build trusts its clients and is for measuring only; --without-checks says that you know");
}

}  // namespace xpud
