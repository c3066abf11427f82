#include <algorithm>
#include <array>
#include <cstdio>

#include "proto/base/text.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/config_file.h"

namespace xpud::xpuctl {
namespace {

constexpr Output kEach[] = {Output::kTable, Output::kWide, Output::kJson, Output::kJsonLines, Output::kCsv};
constexpr Output kTableOrJson[] = {Output::kTable, Output::kJson};

constexpr Output kConfigOutputs[] = {Output::kTable, Output::kWide, Output::kJson, Output::kCsv};
constexpr Output kDocuments[] = {Output::kTable, Output::kJson, Output::kJsonLines};

constexpr Option kGlobal[] = {
    {"--address", "ADDRESS",
     "the daemon's socket, or HOST:PORT of its xpud-gateway (default: as clients find it)"},
    {"--host", "ADDRESS,...",
     "asks several daemons at once, and adds a column for the host; commands that are not views take one"},
    {"-o", "FORMAT", "table, wide (more columns), json, jsonl (one line per sample) or csv"},
    {"-w", "SECONDS", "repeats at this interval until Ctrl-C", true},
    {"-n", "COUNT", "ends after this many samples", true},
    {"--help", "", "prints this help, or that of a command"},
    {"--version", "", "prints the version of xpuctl"},
};

constexpr ExitMeaning kExitMeanings[] = {{kOk, "done"},
                                         {kError, "error"},
                                         {kUsage, "wrong usage"},
                                         {kNoDaemon, "no daemon is running"},
                                         {kNotAllHosts, "not all hosts of --host answered"}};

constexpr Option kTopOptions[] = {
    {"--once", "", "one sample, like -n 1"},
    {"--interval", "SECONDS", "like -w; the default is 1"},
};
constexpr Option kQueryOptions[] = {
    {"--query-gpu", "FIELD,...", "the fields, with nvidia-smi's names"},
    {"--format", "csv,...", "csv, optionally with noheader and nounits"},
    {"--loop-ms", "N", "like -w, in milliseconds"},
    {"-i", "INDEX,...", "only these devices"},
    {"--help-query-gpu", "", "lists the fields"},
};
constexpr Option kProfileOptions[] = {
    {"--all", "", "all sessions, those to come included"},
    {"--tenant", "TENANT", "a tenant's sessions, as ps shows it: uid:1000, uid:998/team-a"},
    {"--seconds", "S", "start: stops by itself after this time"},
    {"--commands", "N", "start: keeps this many of the newest for each session and device (100000)"},
    {"-o", "FORMAT", "save: perfetto, chrome or json; stats: table or json; list: table or json"},
};
constexpr Option kFlightOptions[] = {{"-n", "COUNT", "this many of the last commands; 0: all (20)"}};
constexpr Option kEventOptions[] = {{"-w", "", "continues with new events until Ctrl-C"}};
constexpr Option kLogOptions[] = {
    {"-f", "", "continues with new lines until Ctrl-C; same as -w"},
    {"-w", "", "continues with new lines until Ctrl-C"},
    {"--level", "LEVEL", "lines of this level and above: trace, debug, info, warn, error"},
    {"-n", "LINES", "starts with this many of the latest lines"},
};
constexpr Option kQuotaOptions[] = {{"--device", "N", "only on this device"}};

constexpr Command kCommands[] = {
    {"status", "", 0, "shows the daemon, its devices and the number of sessions", kEach, true, {}, RunStatus},
    {"devices", "", 0, "shows the devices, their memory and work", kEach, true, {}, RunDevices},
    {"ps", "", 0, "shows the sessions with their memory and work", kEach, true, {}, RunPs},
    {"top", "", 0, "shows live rates of devices and sessions", kEach, true, kTopOptions, RunTop},
    {"quota", "[default|USER|USER/TENANT|session:ID SIZE|none]", 2,
     "shows limits of device memory, or sets one, effective at once", kEach, true, kQuotaOptions, RunQuota},
    {"query", "", 0, "prints fields of devices like nvidia-smi", {}, true, kQueryOptions, RunQuery},
    {"profile",
     "start|stop|save|stats SESSION [FILE] | list",
     3,
     "records the commands of running sessions; saves them as a trace, or sums them up",
     {},
     false,
     kProfileOptions,
     RunProfile},
    {"flight", "SESSION|FILE", 1, "shows the last commands of a session, also of one that has ended",
     kTableOrJson, false, kFlightOptions, RunFlight},
    {"events", "", 0, "prints the daemon's events, newest last", kDocuments, false, kEventOptions, RunEvents},
    {"logs", "", 0, "prints the latest lines of the daemon's log", kDocuments, false, kLogOptions, RunLogs},
    {"kill",
     "SESSION",
     1,
     "closes a session; its client gets an error that names the operator as the cause",
     {},
     false,
     {},
     RunKill},
    {"drain",
     "[on|off]",
     1,
     "makes the daemon refuse new sessions; open sessions continue",
     {},
     false,
     {},
     RunDrain},
    {"config",
     "[check [FILE] | show | example]",
     2,
     "checks a configuration file (default: " XPUD_CONFIG_FILE
     "), shows the values in force, or prints a documented example",
     kConfigOutputs,
     false,
     {},
     RunConfig},
    {"doctor",
     "",
     0,
     "checks whether xpud works on this host, and says what to do if not",
     kTableOrJson,
     false,
     {},
     RunDoctor},
    {"version",
     "",
     0,
     "prints the versions of xpuctl and of the daemon",
     kTableOrJson,
     false,
     {},
     RunVersion},
    {"completion",
     "bash|zsh|fish",
     1,
     "prints a completion script for a shell",
     {},
     false,
     {},
     RunCompletion},
    {"help", "[COMMAND]", 1, "prints this help, or that of a command", {}, false, {}, RunHelp},
    {"man", "", 0, "prints the manual page, for man -l", {}, false, {}, RunManual},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }
std::span<const Option> GlobalOptions() { return kGlobal; }
std::span<const ExitMeaning> ExitMeanings() { return kExitMeanings; }

std::vector<Option> GlobalsOf(const Command& command) {
  std::vector<Option> options;
  for (const Option& option : kGlobal) {
    const std::string_view name = option.name;
    const bool hidden = FindOption(command.options, name) != nullptr;
    if (hidden || name == "--version" || (name == "-o" && command.outputs.empty()) ||
        (option.repeats && !command.samples))
      continue;
    options.push_back(option);
  }
  return options;
}

const Command* FindCommand(std::string_view name) {
  const auto* found =
      std::ranges::find_if(kCommands, [&](const Command& command) { return name == command.name; });
  return found == std::end(kCommands) ? nullptr : found;
}

const Option* FindOption(std::span<const Option> options, std::string_view name) {
  const auto found = std::ranges::find_if(options, [&](const Option& option) { return name == option.name; });
  return found == options.end() ? nullptr : &*found;
}

int RefuseUsage(const char* command, const std::string& reason) {
  std::fprintf(stderr, "xpuctl %s: %s; see xpuctl %s --help\n", command, PrintableText(reason).c_str(),
               command);
  return kUsage;
}

int Report(const absl::Status& failure) {
  std::fprintf(stderr, "xpuctl: %s\n",
               PrintableText(std::string_view(failure.message().data(), failure.message().size())).c_str());
  return absl::IsNotFound(failure) ? kNoDaemon : kError;
}

}  // namespace xpud::xpuctl
