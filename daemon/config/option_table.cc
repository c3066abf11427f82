#include "daemon/config/option_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "daemon/config/byte_size.h"
#include "daemon/config/nearest_word.h"
#include "daemon/config/value_types.h"
#include "daemon/telemetry/endpoint.h"
#include "proto/base/status_macros.h"

namespace xpud::config {
namespace {

constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warn", "error"};
constexpr std::string_view kExecutors[] = {"auto", "thread", "process"};
constexpr std::string_view kBatchExecutors[] = {"off", "auto", "on"};
constexpr std::string_view kMerges[] = {"tenant", "off"};
constexpr std::string_view kConfinements[] = {"on", "log", "off"};
constexpr std::string_view kDevices[] = {"auto", "cpu", "gpu", "cuda", "intel"};
constexpr uint64_t kMebibyte = uint64_t{1} << 20;

std::vector<OptionRow> MakeRows() {
  using enum OptionRow::Where;
  std::vector<OptionRow> rows = {
      {.name = "config",
       .value = "PATH",
       .help = "the configuration file, read at the start and on SIGHUP; with -PATH the file may be missing. "
               "The command line overrides the file",
       .fallback = "none",
       .where = kCommandLineOnly,
       .type = Text(&Options::config, "a path")},
      {.name = "socket",
       .value = "PATH",
       .help = "the socket for clients; control.sock is in the same folder",
       .type = Text(&Options::socket, "a path")},
      {.name = "socket-mode",
       .value = "MODE",
       .help = "octal mode of the socket",
       .type = Mode(&Options::socket_mode)},
      {.name = "device",
       .value = "WHICH",
       .help = "the devices to open: auto (all), a kind (cpu, gpu) or a vendor (cpu, cuda, intel)",
       .type = Choice(&Options::device, kDevices)},
      {.name = "driver",
       .value = "PATH",
       .help = "path of the driver library, libze_xpud.so",
       .fallback = "beside this binary",
       .example = "/usr/lib/xpud/libze_xpud.so",
       .type = Text(&Options::driver, "a path")},
      {.name = "cache-dir",
       .value = "PATH",
       .help = "the folder for compiled kernels",
       .fallback = "$XDG_CACHE_HOME/xpud or ~/.cache/xpud",
       .example = "/var/cache/xpud",
       .type = Text(&Options::cache_directory, "a path")},
      {.name = "exit-when-idle",
       .value = "SEC",
       .help = "end when no client has been connected for this time, and there is no claim",
       .fallback = "never",
       .example = "60",
       .live = true,
       .type = Integer(&Options::exit_when_idle_seconds, 0)},
      {.name = "log-level",
       .value = "LEVEL",
       .help = "log messages of this level and above: trace, debug, info, warn, error",
       .live = true,
       .type = Choice(&Options::log_level, kLevels)},
      {.name = "executor",
       .value = "WHICH",
       .help = "which process calls the driver: auto (a process for each GPU, the daemon for the CPU "
               "device), thread (the daemon), process (a process for each device)",
       .type = Choice(&Options::executor, kExecutors)},
      {.name = "batch-executor",
       .value = "WHEN",
       .help =
           "whether work of class batch has an executor process of its own on a device with one, so that "
           "it holds up nobody: off, auto (while it has launches that are long), on (while there is any); "
           "takes about 520 MiB of a GPU",
       .type = Choice(&Options::batch_executor, kBatchExecutors)},
      {.name = "command-limit",
       .value = "MS",
       .help = "longest time of a command on a device with an executor process; then its session is closed; "
               "0: no limit",
       .live = true,
       .type = Integer(&Options::command_limit_ms, 0)},
      {.name = "memory-quota",
       .value = "SIZE",
       .help = "how much of each device all processes of a user may hold, unless the file's quotas or "
               "`xpuctl quota` set another quota; on the command line, a number without a unit is in MiB",
       .fallback = "nine tenths of the device",
       .example = "16GiB",
       .live = true,
       .type = Size(&Options::memory_quota)},
      {.name = "host-memory-limit",
       .value = "SIZE",
       .help = "how much of its own memory a session may share with devices; shared memory stays in RAM",
       .fallback = "half of this machine's memory",
       .example = "8GiB",
       .live = true,
       .type = Size(&Options::host_memory_limit)},
      {.name = "move-out",
       .value = "SIZE",
       .help =
           "how much host memory may hold what is moved out of devices when they are full, of all devices "
           "together; auto: a quarter of this machine's memory for devices with memory of their own, "
           "nothing for those whose memory is the machine's, such as the CPU; 0: nothing is moved out",
       .example = "64GiB",
       .type = SizeOrAuto(&Options::move_out)},
      {.name = "move-out-folder",
       .value = "PATH",
       .help =
           "a folder for a file that holds what is moved out of devices when --move-out has no more room; "
           "only the daemon's user may write there. The file has no name, so nothing is left when the "
           "daemon ends",
       .fallback = "none: then a device that is full is out of memory",
       .example = "/var/lib/xpud/moved-out",
       .type = Text(&Options::move_out_folder, "a path")},
      {.name = "move-out-files",
       .value = "SIZE",
       .help =
           "how much this file holds, of all devices together; reserved on the disk when the daemon starts",
       .fallback = "has to be set if move-out-folder is",
       .example = "200GiB",
       .type = Size(&Options::move_out_files)},
      {.name = "turn-limit",
       .value = "SEC",
       .help = "when the memory of active tenants does not fit on a device together, they take turns; the "
               "longest time of a turn",
       .live = true,
       .type = Seconds(&Options::turn_limit_ms, 100, 600'000)},
      {.name = "merge",
       .value = "WHICH",
       .help = "which equal contents of device memory are there once, and are copied when one of their users "
               "writes them: tenant (of one tenant's programs), off (none)",
       .type = Choice(&Options::merge, kMerges)},
      {.name = "user-clients",
       .value = "COUNT",
       .help = "how many clients of one user may be connected, of 1024 in total",
       .live = true,
       .type = Integer(&Options::user_clients, 1)},
      {.name = "gateway-user",
       .value = "USER",
       .help = "user whose gateway (xpud-gateway) may set the tenant of a session; ignored if there is no "
               "such user",
       .fallback = "only the daemon's own user, and root",
       .example = "xpud-gateway",
       .type = Text(&Options::gateway_user, "an account's name or number")},
      {.name = "operator-group",
       .value = "GROUP",
       .help =
           "group that may use the control socket: operators, and xpud-node-agent. The daemon's user must be "
           "in it. Ignored for a socket that systemd made",
       .fallback = "only the daemon's own user, and root",
       .example = "xpud-operators",
       .type = Text(&Options::operator_group, "a group's name or number")},
      {.name = "kernel-limit",
       .value = "COUNT",
       .help = "how many compiled kernels to keep for each device; the least recently used go first",
       .live = true,
       .type = Integer(&Options::kernel_limit, 256)},
      {.name = "cache-limit",
       .value = "SIZE",
       .help = "how much compiled code to keep on disk; the least recently used goes first",
       .fallback = "1GiB",
       .example = "1GiB",
       .live = true,
       .type = Size(&Options::cache_limit, kMebibyte)},
      {.name = "stall-after",
       .value = "SEC",
       .help = "report a session as stalled, with the cause, in the events (xpuctl events) when it has work "
               "and nothing of it has run or ended for this time; 0: never",
       .live = true,
       .type = Integer(&Options::stall_after_seconds, 0, 86'400)},
      {.name = "state-dir",
       .value = "PATH",
       .help = "a folder, of the daemon's user alone, that keeps claims (xpuctl claim): they are there again "
               "after a restart",
       .fallback = "claims end with the daemon",
       .example = "/var/lib/xpud",
       .type = Text(&Options::state_directory, "a path")},
      {.name = "least-share",
       .value = "PERCENT",
       .help = "the part of a device's time that tenants of a class with work get at least, together, while "
               "those of higher classes (realtime, interactive, batch) want all of it; 0%: nothing",
       .type = Percent(&Options::least_share, 3'000)},
      {.name = "flight-dumps",
       .value = "PATH",
       .help = "a folder for files that say what a session did last, written when it ends by a fault or "
               "before its work was done; `xpuctl flight FILE` shows one; the 100 newest are kept",
       .fallback = "none are written",
       .example = "/var/lib/xpud/flights",
       .type = Text(&Options::flight_dumps, "a path")},
      {.name = "metrics-listen",
       .value = "[HOST:]PORT|unix:PATH",
       .help = "serve metrics for Prometheus over HTTP at /metrics, without authentication, on HOST (an "
               "address; default: 127.0.0.1) or at a unix socket in the folder of --socket",
       .fallback = "not at all",
       .example = "127.0.0.1:9464",
       .type = MetricsAddress(&Options::metrics_address)},
      {.name = "confine",
       .value = "MODE",
       .help = "restrict xpud's processes to what serving needs: on, log (refuse nothing; the kernel's log "
               "shows what would be refused), off",
       .type = Choice(&Options::confine, kConfinements)},
      {.name = "standby-executor",
       .help = "keep a spare executor process that has opened the device: replaces a lost executor faster, "
               "but takes memory of a GPU",
       .type = Switch(&Options::standby_executor)},
      {.name = "test-kernels",
       .help = "for tests: let clients run kernels that fault or do not end",
       .where = kCommandLineOnly,
       .type = Switch(&Options::test_kernels)},
      {.name = "asynchronous",
       .help = "for tests: treat the CPU device as asynchronous, like a GPU",
       .where = kCommandLineOnly,
       .type = Switch(&Options::asynchronous)},
      {.name = "test-devices",
       .value = "COUNT",
       .help = "for tests: divide the CPU device's workers and memory among this many CPU devices",
       .fallback = "1",
       .where = kCommandLineOnly,
       .type = Integer(&Options::test_devices, 1, 16)},
      {.name = "test-device-memory",
       .value = "SIZE",
       .help = "for tests: each device has only this much memory; a number without a unit is in MiB",
       .fallback = "what it has",
       .where = kCommandLineOnly,
       .type = Size(&Options::test_device_memory, kMebibyte)},
      {.name = "background",
       .help = "detach from the caller's session",
       .where = kCommandLineOnly,
       .type = Switch(&Options::background)},
      {.name = "ready-fd",
       .value = "FD",
       .help = "write one byte to this descriptor when clients can connect",
       .fallback = "nowhere",
       .where = kCommandLineOnly,
       .type = Integer(&Options::ready_fd, 0)},
      {.name = "help", .help = "print this help", .where = kCommandLineOnly, .type = Switch(&Options::help)},
      {.name = "version",
       .help = "print the version",
       .where = kCommandLineOnly,
       .type = Switch(&Options::version)},

  };
  return rows;
}

}  // namespace

ValueType MetricsAddress(std::string Options::* member) {
  ValueType type = Text(member, "HOST:PORT, PORT or unix:PATH");
  type.read = [member](Options& options, const std::string& text, Source) {
    RETURN_IF_ERROR(telemetry::CheckAddress(text));
    options.*member = text;
    return absl::OkStatus();
  };
  return type;
}

namespace {

std::string PercentText(uint32_t hundredths) {
  std::string text = absl::StrCat(hundredths / 100);
  if (hundredths % 100 != 0) absl::StrAppendFormat(&text, ".%02d", hundredths % 100);
  return text + "%";
}

}  // namespace

ValueType SizeOrAuto(std::optional<uint64_t> Options::* member) {
  ValueType size = Size(member);
  const std::string allowed = size.allowed + ", or auto";
  return {allowed,
          [=](Options& options, const std::string& text, Source source) {
            options.*member = std::nullopt;
            if (text == "auto" || size.read(options, text, source).ok()) return absl::OkStatus();
            return NotAllowed(text, allowed);
          },
          [=](const Options& options) { return options.*member ? size.show(options) : "auto"; }, size.copy};
}

ValueType Seconds(uint32_t Options::* member, uint32_t least, uint32_t most) {
  const auto shown = [](uint32_t ms) { return absl::StrCat(ms / 1e3); };
  const std::string allowed =
      absl::StrCat("seconds from ", shown(least), " to ", shown(most), " with at most three decimals");
  return {allowed,
          [=](Options& options, const std::string& text, Source) {
            double seconds = 0;
            if (!absl::SimpleAtod(text, &seconds)) return NotAllowed(text, allowed);
            const double ms = std::round(seconds * 1e3);
            const bool fits = ms >= least && ms <= most;  // not: NaN
            if (!fits || std::abs(seconds * 1e3 - ms) > 1e-6) return NotAllowed(text, allowed);
            options.*member = static_cast<uint32_t>(ms);
            return absl::OkStatus();
          },
          [=](const Options& options) { return shown(options.*member); }, Copy(member)};
}

ValueType Percent(uint32_t Options::* member, uint32_t most) {
  const std::string allowed =
      absl::StrCat("a percentage from 0% to ", PercentText(most), " with at most two decimals");
  return {allowed,
          [=](Options& options, const std::string& text, Source) {
            double percent = 0;
            if (!absl::SimpleAtod(absl::StripSuffix(text, "%"), &percent)) return NotAllowed(text, allowed);
            const double hundredths = std::round(percent * 100);
            const bool fits = hundredths >= 0 && hundredths <= most;  // not: NaN
            if (!fits || std::abs(percent * 100 - hundredths) > 1e-6) return NotAllowed(text, allowed);
            options.*member = static_cast<uint32_t>(hundredths);
            return absl::OkStatus();
          },
          [=](const Options& options) { return PercentText(options.*member); }, Copy(member)};
}

ValueType Mode(unsigned Options::* member) {
  const std::string allowed = "an octal mode from 0001 to 0777, such as 0660";
  return {allowed,
          [=](Options& options, const std::string& text, Source) {
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
absl::Status ReadSize(const std::string& text, Source source, uint64_t& out) {
  const bool bare = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (bare && source == Source::kFile && text != "0")
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

std::string_view NearestName(std::string_view name, Source source) {
  std::vector<std::string_view> names;
  if (source == Source::kFile) names.push_back(kQuotasKey);
  for (const OptionRow& row : OptionRows())
    if (source != Source::kFile || row.where != OptionRow::kCommandLineOnly) names.push_back(row.name);
  return NearestWord(name, names);
}

}  // namespace xpud::config
