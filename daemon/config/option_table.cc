#include "daemon/config/option_table.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "daemon/config/byte_size.h"
#include "daemon/config/value_types.h"

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
       "the configuration file, read at the start and on SIGHUP; -PATH: it need not be there. The command "
       "line "
       "counts where both say something",
       "none", "", kCommandLineOnly, false, Text(&Options::config, "a path")},
      {"socket", "PATH", "where clients connect; control.sock lies beside it", "", "", kBoth, false,
       Text(&Options::socket, "a path")},
      {"socket-mode", "MODE", "octal mode of the socket", "", "", kBoth, false, Mode(&Options::socket_mode)},
      {"device", "WHICH",
       "the devices to open: auto (every one), a kind (cpu, gpu) or a vendor (cpu, cuda, intel)", "", "",
       kBoth, false, Choice(&Options::device, kDevices)},
      {"driver", "PATH", "the driver, libze_xpud.so", "beside this binary", "/usr/lib/xpud/libze_xpud.so",
       kBoth, false, Text(&Options::driver, "a path")},
      {"cache-dir", "PATH", "the folder of compiled kernels", "$XDG_CACHE_HOME/xpud or ~/.cache/xpud",
       "/var/cache/xpud", kBoth, false, Text(&Options::cache_directory, "a path")},
      {"exit-when-idle", "SEC", "end this long after the last client", "never", "60", kBoth, true,
       Integer(&Options::exit_when_idle_seconds, 0)},
      {"log-level", "LEVEL", "log what is of this level or worse: trace, debug, info, warn, error", "", "",
       kBoth, true, Choice(&Options::log_level, kLevels)},
      {"executor", "WHICH",
       "who calls the device's driver: auto (a process for each GPU, a thread for the CPU device), thread, "
       "process",
       "", "", kBoth, false, Choice(&Options::executor, kExecutors)},
      {"command-limit", "MS",
       "a command on a device with an executor process may run this long, then its session is closed; 0: any "
       "time",
       "", "", kBoth, true, Integer(&Options::command_limit_ms, 0)},
      {"memory-quota", "SIZE",
       "the processes of a user may hold this much of each device together, unless `xpuctl quota` or the "
       "file's quotas say otherwise; on the command line a number alone is in MiB",
       "nine tenths of the device", "16GiB", kBoth, true, Size(&Options::memory_quota)},
      {"host-memory-limit", "SIZE",
       "a session may share this much of its memory with its devices, which keeps it in RAM",
       "half of this machine's memory", "8GiB", kBoth, true, Size(&Options::host_memory_limit)},
      {"user-clients", "COUNT", "a user may have so many clients connected, of 1024 places in all", "", "",
       kBoth, true, Integer(&Options::user_clients, 1)},
      {"gateway-user", "USER",
       "whose xpud-gateway may say for which of its tenants it asks; where there is no such user, nobody's",
       "only the daemon's own user's, and root's", "xpud-gateway", kBoth, false,
       Text(&Options::gateway_user, "an account's name or number")},
      {"kernel-limit", "COUNT", "keep so many compiled kernels for each device, those that were used last",
       "", "", kBoth, true, Integer(&Options::kernel_limit, 256)},
      {"cache-limit", "SIZE", "keep so much of them on disk, what was used last", "1GiB", "1GiB", kBoth, true,
       Size(&Options::cache_limit, kMebibyte)},
      {"metrics-listen", "[HOST:]PORT|unix:PATH",
       "serve metrics for Prometheus over HTTP at /metrics, to whoever can connect there: on 127.0.0.1 "
       "unless "
       "HOST, an address, says otherwise, or at a unix socket in the folder of --socket",
       "not at all", "127.0.0.1:9464", kBoth, false,
       Text(&Options::metrics_address, "HOST:PORT, PORT or unix:PATH")},
      {"confine", "MODE",
       "rights of xpud's processes: on (none but those that serving takes), log (the kernel's log names what "
       "would be refused), off",
       "", "", kBoth, false, Choice(&Options::confine, kConfinements)},
      {"standby-executor", "",
       "keep a second executor process ready, which costs memory on a GPU and makes the replacement of a "
       "lost "
       "one quicker",
       "", "", kBoth, false, Switch(&Options::standby_executor)},
      {"test-kernels", "", "let clients run kernels that fault or do not end (for tests)", "", "",
       kCommandLineOnly, false, Switch(&Options::test_kernels)},
      {"asynchronous", "", "treat the CPU device like a GPU, which works on its own (for tests)", "", "",
       kCommandLineOnly, false, Switch(&Options::asynchronous)},
      {"background", "", "detach from the caller", "", "", kCommandLineOnly, false,
       Switch(&Options::background)},
      {"ready-fd", "FD", "write one byte there when clients can connect", "nowhere", "", kCommandLineOnly,
       false, Integer(&Options::ready_fd, 0)},
      {"help", "", "say this", "", "", kCommandLineOnly, false, Switch(&Options::help)},
      {"version", "", "say which xpud this is", "", "", kCommandLineOnly, false, Switch(&Options::version)},
  };
  return rows;
}

// Of Levenshtein.
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

ValueType Mode(unsigned Options::* member) {
  const std::string allowed = "an octal mode from 0001 to 0777, as 0660";
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

// A number alone would be bytes to xpuctl and MiB to the command line, as it always was.
absl::Status ReadSize(const std::string& text, Place place, uint64_t& out) {
  const bool bare = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (bare && place == Place::kFile && text != "0") return absl::InvalidArgumentError("a number alone");
  const auto bytes = ParseBytes(text);
  if (!bytes || (bare && *bytes >= UINT64_MAX / kMebibyte)) return absl::InvalidArgumentError("no size");
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
