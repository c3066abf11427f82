#include "daemon/config/option_table.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "daemon/config/byte_size.h"
#include "daemon/config/value_types.h"
#include "daemon/telemetry/endpoint.h"
#include "proto/base/status_macros.h"

namespace xpud::config {
namespace {

constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warn", "error"};
constexpr std::string_view kExecutors[] = {"auto", "thread", "process"};
constexpr std::string_view kConfinements[] = {"on", "log", "off"};
constexpr std::string_view kDevices[] = {"auto", "cpu", "gpu", "cuda", "intel"};
constexpr uint64_t kMebibyte = uint64_t{1} << 20;

std::vector<OptionRow> MakeRows() {
  using enum OptionRow::Where;
  std::vector<OptionRow> rows = {
      {"config", "PATH",
       "the configuration file, read at the start and on SIGHUP; with -PATH the file may be missing. The "
       "command "
       "line overrides the file",
       "none", "", kCommandLineOnly, false, Text(&Options::config, "a path")},
      {"socket", "PATH", "the socket for clients; control.sock is in the same folder", "", "", kBoth, false,
       Text(&Options::socket, "a path")},
      {"socket-mode", "MODE", "octal mode of the socket", "", "", kBoth, false, Mode(&Options::socket_mode)},
      {"device", "WHICH", "the devices to open: auto (all), a kind (cpu, gpu) or a vendor (cpu, cuda, intel)",
       "", "", kBoth, false, Choice(&Options::device, kDevices)},
      {"driver", "PATH", "path of the driver library, libze_xpud.so", "beside this binary",
       "/usr/lib/xpud/libze_xpud.so", kBoth, false, Text(&Options::driver, "a path")},
      {"cache-dir", "PATH", "the folder for compiled kernels", "$XDG_CACHE_HOME/xpud or ~/.cache/xpud",
       "/var/cache/xpud", kBoth, false, Text(&Options::cache_directory, "a path")},
      {"exit-when-idle", "SEC", "end when no client has been connected for this time", "never", "60", kBoth,
       true, Integer(&Options::exit_when_idle_seconds, 0)},
      {"log-level", "LEVEL", "log messages of this level and above: trace, debug, info, warn, error", "", "",
       kBoth, true, Choice(&Options::log_level, kLevels)},
      {"executor", "WHICH",
       "which process calls the driver: auto (a process for each GPU, the daemon for the CPU device), thread "
       "(the daemon), process (a process for each device)",
       "", "", kBoth, false, Choice(&Options::executor, kExecutors)},
      {"command-limit", "MS",
       "longest time of a command on a device with an executor process; then its session is closed; 0: no "
       "limit",
       "", "", kBoth, true, Integer(&Options::command_limit_ms, 0)},
      {"memory-quota", "SIZE",
       "how much of each device all processes of a user may hold, unless the file's quotas or `xpuctl quota` "
       "set another quota; on the command line, a number without a unit is in MiB",
       "nine tenths of the device", "16GiB", kBoth, true, Size(&Options::memory_quota)},
      {"host-memory-limit", "SIZE",
       "how much of its own memory a session may share with devices; shared memory stays in RAM",
       "half of this machine's memory", "8GiB", kBoth, true, Size(&Options::host_memory_limit)},
      {"user-clients", "COUNT", "how many clients of one user may be connected, of 1024 in total", "", "",
       kBoth, true, Integer(&Options::user_clients, 1)},
      {"gateway-user", "USER",
       "user whose gateway (xpud-gateway) may set the tenant of a session; ignored if there is no such user",
       "only the daemon's own user, and root", "xpud-gateway", kBoth, false,
       Text(&Options::gateway_user, "an account's name or number")},
      {"kernel-limit", "COUNT",
       "how many compiled kernels to keep for each device; the least recently used go first", "", "", kBoth,
       true, Integer(&Options::kernel_limit, 256)},
      {"cache-limit", "SIZE", "how much compiled code to keep on disk; the least recently used goes first",
       "1GiB", "1GiB", kBoth, true, Size(&Options::cache_limit, kMebibyte)},
      {"stall-after", "SEC",
       "report a session as stalled, with the cause, in the events (xpuctl events) when it has work and "
       "nothing "
       "of it has run or ended for this time; 0: never",
       "", "", kBoth, true, Integer(&Options::stall_after_seconds, 0, 86'400)},
      {"flight-dumps", "PATH",
       "a folder for files that say what a session did last, written when it ends by a fault or before its "
       "work was done; `xpuctl flight FILE` shows one; the 100 newest are kept",
       "none are written", "/var/lib/xpud/flights", kBoth, false, Text(&Options::flight_dumps, "a path")},
      {"metrics-listen", "[HOST:]PORT|unix:PATH",
       "serve metrics for Prometheus over HTTP at /metrics, without authentication, on HOST (an address; "
       "default: "
       "127.0.0.1) or at a unix socket in the folder of --socket",
       "not at all", "127.0.0.1:9464", kBoth, false, MetricsAddress(&Options::metrics_address)},
      {"confine", "MODE",
       "restrict xpud's processes to what serving needs: on, log (refuse nothing; the kernel's log shows "
       "what would "
       "be refused), off",
       "", "", kBoth, false, Choice(&Options::confine, kConfinements)},
      {"standby-executor", "",
       "keep a spare executor process that has opened the device: replaces a lost executor faster, but takes "
       "memory of a GPU",
       "", "", kBoth, false, Switch(&Options::standby_executor)},
      {"test-kernels", "", "for tests: let clients run kernels that fault or do not end", "", "",
       kCommandLineOnly, false, Switch(&Options::test_kernels)},
      {"asynchronous", "", "for tests: treat the CPU device as asynchronous, like a GPU", "", "",
       kCommandLineOnly, false, Switch(&Options::asynchronous)},
      {"test-devices", "COUNT",
       "for tests: divide the CPU device's workers and memory among this many CPU devices", "1", "",
       kCommandLineOnly, false, Integer(&Options::test_devices, 1, 16)},
      {"background", "", "detach from the caller's session", "", "", kCommandLineOnly, false,
       Switch(&Options::background)},
      {"ready-fd", "FD", "write one byte to this descriptor when clients can connect", "nowhere", "",
       kCommandLineOnly, false, Integer(&Options::ready_fd, 0)},
      {"help", "", "print this help", "", "", kCommandLineOnly, false, Switch(&Options::help)},
      {"version", "", "print the version", "", "", kCommandLineOnly, false, Switch(&Options::version)},
  };
  return rows;
}

// The Levenshtein distance.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t kept = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({kept, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

ValueType MetricsAddress(std::string Options::* member) {
  ValueType type = Text(member, "HOST:PORT, PORT or unix:PATH");
  type.read = [member](Options& options, const std::string& text, Place) {
    RETURN_IF_ERROR(telemetry::CheckAddress(text));
    options.*member = text;
    return absl::OkStatus();
  };
  return type;
}

ValueType Mode(unsigned Options::* member) {
  const std::string allowed = "an octal mode from 0001 to 0777, such as 0660";
  return {allowed,
          [=](Options& options, const std::string& text, Place) {
            constexpr unsigned kMax = 0777;
            unsigned mode = 0;
            for (const char c : text) {
              if (c < '0' || c > '7') return NotAllowed(text, allowed);
              mode = std::min(mode * 8 + static_cast<unsigned>(c - '0'), kMax + 1);
            }
            if (mode == 0 || mode > kMax) return NotAllowed(text, allowed);
            options.*member = mode;
            return absl::OkStatus();
          },
          [=](const Options& options) { return absl::StrFormat("%04o", options.*member); }, Copy(member)};
}

// A number without a unit would be bytes in xpuctl and MiB on the command line, so the file requires a unit.
absl::Status ReadSize(const std::string& text, Place place, uint64_t& out) {
  const bool bare = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (bare && place == Place::kFile && text != "0")
    return absl::InvalidArgumentError("a number without a unit");
  const auto bytes = ParseBytes(text);
  if (!bytes || (bare && *bytes >= UINT64_MAX / kMebibyte)) return absl::InvalidArgumentError("not a size");
  out = bare ? *bytes * kMebibyte : *bytes;
  return absl::OkStatus();
}

std::string OptionRow::Default() const {
  return fallback.empty() ? type.show(Options{}) : std::string(fallback);
}

std::span<const OptionRow> OptionRows() {
  static const auto* const rows = new std::vector<OptionRow>(MakeRows());
  return *rows;
}

const OptionRow* FindRow(std::string_view name) {
  const auto rows = OptionRows();
  const auto found = std::ranges::find(rows, name, &OptionRow::name);
  return found == rows.end() ? nullptr : &*found;
}

std::string_view NearestName(std::string_view name, Place place) {
  std::string_view nearest = place == Place::kFile ? kQuotasKey : std::string_view();
  size_t least = nearest.empty() ? SIZE_MAX : Distance(name, nearest);
  for (const OptionRow& row : OptionRows()) {
    if (place == Place::kFile && row.where == OptionRow::kCommandLineOnly) continue;
    const size_t distance = Distance(name, row.name);
    if (distance >= least) continue;
    least = distance;
    nearest = row.name;
  }
  return least <= std::max<size_t>(2, name.size() / 3) ? nearest : std::string_view();
}

}  // namespace xpud::config
