// top: the rates between two samples, again and again. On a terminal the picture stays in place; elsewhere
// one follows another. Ends with Ctrl-C, after -n samples, or with --once.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/rates.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

volatile sig_atomic_t interrupted = 0;

struct TopOptions {
  double interval = 1;  // seconds
  int64_t count = -1;   // samples; negative: until Ctrl-C
};

// Sets the option `name`; false when there is none, or `value` is not for it.
bool Set(std::string_view name, const std::string& value, TopOptions& options) {
  if (name == "--interval") return absl::SimpleAtod(value, &options.interval) && options.interval >= 0.05;
  if (name == "-n") return absl::SimpleAtoi(value, &options.count) && options.count >= 1;
  return false;
}

// False when an argument is not understood.
bool Parse(const std::vector<std::string>& arguments, TopOptions& options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--once") {
      options.count = 1;
    } else if (i + 1 == arguments.size() || !Set(arguments[i], arguments[i + 1], options)) {
      return false;
    } else {
      ++i;
    }
  }
  return true;
}

std::string Bar(double ratio, size_t width) {
  const auto filled = static_cast<size_t>(std::lround(ratio * static_cast<double>(width)));
  return "[" + std::string(filled, '#') + std::string(width - filled, ' ') + "]";
}

std::string Picture(const v1::GetStatusResponse& status, const Rates& rates) {
  const v1::Daemon& daemon = status.daemon();
  std::string text =
      absl::StrCat("xpud ", daemon.version(), ", pid ", daemon.pid(), ", up ", Duration(daemon.uptime_ns()),
                   ", ", status.sessions_size(), status.sessions_size() == 1 ? " session" : " sessions");
  if (rates.daemon_cpu) absl::StrAppend(&text, ", CPU ", Percent(*rates.daemon_cpu));
  text += "\n\n";
  for (const DeviceRates& row : rates.devices) {
    const v1::Device& device = *row.device;
    absl::StrAppend(&text, "device ", device.index(), " ", device.name(), "  ", Bar(row.busy, 20), " ",
                    Percent(row.busy), " busy, ", Count(row.commands), " commands/s, memory ",
                    Bytes(static_cast<double>(device.memory_used_bytes())), " of ",
                    Bytes(static_cast<double>(device.memory_total_bytes())), ", pool ",
                    Bytes(static_cast<double>(device.pool_bytes())), "\n");
  }
  Table table({">PID", "USER", "NAME", ">DEVICE", ">COMMANDS/S", ">WAITING", ">MEMORY", ">PEAK", ">UP/S",
               ">DOWN/S", ">AGE"});
  for (const SessionRates& row : rates.sessions) {
    const v1::Session& session = *row.session;
    table.Add({absl::StrCat(session.pid()), UserName(session.uid()), session.client_name(), Percent(row.busy),
               Count(row.commands),
               Count(static_cast<double>(session.commands_submitted() - session.commands_completed())),
               Bytes(static_cast<double>(session.memory_bytes())),
               Bytes(static_cast<double>(session.memory_peak_bytes())), Bytes(row.uploaded),
               Bytes(row.downloaded), Duration(session.age_ns())});
  }
  return text + "\n" + table.ToString();
}

std::string Json(const v1::GetStatusResponse& status, const Rates& rates) {
  std::string text = absl::StrFormat("{\"seconds\":%.6f", rates.seconds);
  if (rates.daemon_cpu) absl::StrAppendFormat(&text, ",\"daemon_cpu\":%.6f", *rates.daemon_cpu);
  text += ",\"devices\":[";
  for (const DeviceRates& row : rates.devices) {
    absl::StrAppendFormat(&text, "%s{\"index\":%d,\"busy\":%.6f,\"commands_per_second\":%.3f}",
                          &row == &rates.devices[0] ? "" : ",", row.device->index(), row.busy, row.commands);
  }
  text += "],\"sessions\":[";
  for (const SessionRates& row : rates.sessions) {
    absl::StrAppendFormat(
        &text,
        "%s{\"id\":%d,\"pid\":%d,\"client_name\":%s,\"busy\":%.6f,\"commands_per_second\":%.3f,"
        "\"uploaded_bytes_per_second\":%.1f,\"downloaded_bytes_per_second\":%.1f}",
        &row == &rates.sessions[0] ? "" : ",", row.session->id(), row.session->pid(),
        JsonString(row.session->client_name()), row.busy, row.commands, row.uploaded, row.downloaded);
  }
  return absl::StrCat(text, "],\"status\":", ToJson(status), "}\n");
}

// Sleeps, unless Ctrl-C cuts it short.
void Pause(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!interrupted && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

int Loop(ControlClient& client, const TopOptions& options, Output output) {
  const bool in_place = output == Output::kTable && options.count != 1 && isatty(STDOUT_FILENO);
  auto earlier = client.GetStatus();
  if (!earlier.ok()) return Report(earlier.status());
  for (int64_t shown = 0; options.count < 0 || shown < options.count; ++shown) {
    Pause(options.interval);
    if (interrupted) break;
    auto later = client.GetStatus();
    if (!later.ok()) return Report(later.status());
    const Rates rates = Between(*earlier, *later);
    const std::string text = output == Output::kJson ? Json(*later, rates) : Picture(*later, rates);
    if (in_place) std::fputs("\x1b[H\x1b[2J", stdout);
    if (!in_place && shown > 0 && output == Output::kTable) std::fputs("\n", stdout);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    earlier = std::move(later);
  }
  return kOk;
}

}  // namespace

int RunTop(const Invocation& invocation) {
  TopOptions options;
  if (!Parse(invocation.arguments, options)) {
    std::fputs("usage: xpuctl top [--once] [--interval SECONDS, at least 0.05] [-n COUNT]\n", stderr);
    return kUsage;
  }
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return Loop(*client, options, invocation.output);
}

}  // namespace xpud::xpuctl
