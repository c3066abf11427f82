#include <algorithm>
#include <array>
#include <cstdio>

#include "proto/base/text.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/config_file.h"
#include "tools/xpuctl/program.h"

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
constexpr Option kClaimOptions[] = {
    {"--class", "CLASS", "realtime, interactive (the default) or batch: who goes first"},
    {"--weight", "N", "its part of the time among the tenants of its class: 1 to 10000 (100)"},
    {.name = "--device",
     .value = "N,...",
     .summary = "the devices, as its clients will count them from 0 (all)"},
    {"--memory", "RANGE", "on each device, as 8GiB..20GiB: kept free for it, and the most that it may have"},
    {"--time", "RANGE", "of each device, as 30%..60%: while it has work, and also on an idle device"},
    {"--sessions", "N", "at most so many; none: no limit but --user-clients"},
    {.name = "--label",
     .value = "NAME=VALUE",
     .summary = "shown in metrics; set replaces all labels",
     .many = true},
    {.name = "--uid", .value = "USER", .summary = "has the claim at the ordinary socket", .many = true},
    {.name = "--tenant",
     .value = "USER/TENANT",
     .summary = "a tenant of that user's gateway has it",
     .many = true},
    {"--door-uid", "USER", "has it at the socket in doors/KEY"},
    {"--lifetime", "TIME", "as 90s, 2h or 7d, after which the claim ends; none: for ever"},
};
constexpr Option kGrantOptions[] = {
    {"--share", "N", "hundredths of what is guaranteed of each device's time, 1 to 100 (10)"},
    {"--memory", "SIZE", "on each device, as 8GiB: kept free for the program, and the most that it may have"},
    {"--class", "CLASS", "realtime, interactive or batch (interactive, or the best that you may have)"},
    {"--device", "N,...", "the devices, as the program will count them from 0 (all)"},
    {.name = "--label", .value = "NAME=VALUE", .summary = "shown in metrics and by claim", .many = true},
    {"--max-time", "TIME", "as 90s, 15m or 2h: then the program gets SIGTERM, and 10 s later SIGKILL"},
    {"--wait", "[=SECONDS]", "waits, at most so long, while others have what you may have"},
    {"--address", "SOCKET", "the agent's (default: $XPUD_AGENT_SOCKET, else /run/xpud-agent/agent.sock)"},
};
constexpr CommandExit kGrantExits[] = {
    {"the program's", "if it has ended by itself; 128 and the signal's number if a signal has ended it"},
    {"124", "--max-time is over"},
    {"125", "there is no grant: the reason is on standard error; also wrong usage"},
    {"126", "the program cannot be run"},
    {"127", "the program is not found"},
};
constexpr Option kMemoryOptions[] = {{"--device", "N,...", "only these devices"}};
constexpr Option kQuotaOptions[] = {{"--device", "N", "only on this device"}};

constexpr Command kCommands[] = {
    {.name = "status",
     .summary = "shows the daemon, its devices and the number of sessions",
     .outputs = kEach,
     .samples = true,
     .run = RunStatus},
    {.name = "devices",
     .summary = "shows the devices, their memory and work",
     .outputs = kEach,
     .samples = true,
     .run = RunDevices},
    {.name = "ps",
     .summary = "shows the sessions with their memory and work",
     .outputs = kEach,
     .samples = true,
     .run = RunPs},
    {.name = "top",
     .summary = "shows live rates of devices and sessions",
     .outputs = kEach,
     .samples = true,
     .options = kTopOptions,
     .run = RunTop},
    {.name = "memory",
     .summary = "shows what each tenant has of the devices' memory, and what is moved out of it",
     .outputs = kEach,
     .samples = true,
     .options = kMemoryOptions,
     .run = RunMemory},
    {.name = "quota",
     .arguments = "[default|USER|USER/TENANT|session:ID SIZE|none]",
     .most_arguments = 2,
     .summary = "shows limits of device memory, or sets one, effective at once",
     .outputs = kEach,
     .samples = true,
     .options = kQuotaOptions,
     .run = RunQuota},
    {.name = "claim",
     .arguments = "[create|set|show|pause|resume|drain|delete KEY]",
     .most_arguments = 2,
     .summary = "shows claims, which are granted parts of devices; makes, changes and ends them",
     .outputs = kEach,
     .samples = true,
     .options = kClaimOptions,
     .run = RunClaim},
    {.name = "grant",
     .arguments = "-- PROGRAM [ARGUMENT...]",
     .summary =
         "runs a program with a part of this machine's devices, which xpud-node-agent grants until it ends",
     .options = kGrantOptions,
     .runs_program = true,
     .exits = kGrantExits,
     .usage_error = kOwnFailure,
     .run = RunGrant},
    {.name = "query",
     .summary = "prints fields of devices like nvidia-smi",
     .samples = true,
     .options = kQueryOptions,
     .run = RunQuery},
    {.name = "profile",
     .arguments = "start|stop|save|stats SESSION [FILE] | list",
     .most_arguments = 3,
     .summary = "records the commands of running sessions; saves them as a trace, or sums them up",
     .options = kProfileOptions,
     .run = RunProfile},
    {.name = "flight",
     .arguments = "SESSION|FILE",
     .most_arguments = 1,
     .summary = "shows the last commands of a session, also of one that has ended",
     .outputs = kTableOrJson,
     .options = kFlightOptions,
     .run = RunFlight},
    {.name = "events",
     .summary = "prints the daemon's events, newest last",
     .outputs = kDocuments,
     .options = kEventOptions,
     .run = RunEvents},
    {.name = "logs",
     .summary = "prints the latest lines of the daemon's log",
     .outputs = kDocuments,
     .options = kLogOptions,
     .run = RunLogs},
    {.name = "kill",
     .arguments = "SESSION",
     .most_arguments = 1,
     .summary = "closes a session; its client gets an error that names the operator as the cause",
     .run = RunKill},
    {.name = "nice",
     .arguments = "SESSION NICE",
     .most_arguments = 2,
     .summary =
         "lowers a session among those of its user or claim: 0 to 19, each a fifth less of the time; only "
         "operators can raise it again",
     .run = RunNice},
    {.name = "drain",
     .arguments = "[on|off]",
     .most_arguments = 1,
     .summary = "makes the daemon refuse new sessions; open sessions continue",
     .run = RunDrain},
    {.name = "config",
     .arguments = "[check [FILE] | show | example]",
     .most_arguments = 2,
     .summary = "checks a configuration file (default: " XPUD_CONFIG_FILE
                "), shows the values in force, or prints a documented example",
     .outputs = kConfigOutputs,
     .run = RunConfig},
    {.name = "doctor",
     .summary = "checks whether xpud works on this host, and says what to do if not",
     .outputs = kTableOrJson,
     .run = RunDoctor},
    {.name = "version",
     .summary = "prints the versions of xpuctl and of the daemon",
     .outputs = kTableOrJson,
     .run = RunVersion},
    {.name = "completion",
     .arguments = "bash|zsh|fish",
     .most_arguments = 1,
     .summary = "prints a completion script for a shell",
     .run = RunCompletion},
    {.name = "help",
     .arguments = "[COMMAND]",
     .most_arguments = 1,
     .summary = "prints this help, or that of a command",
     .run = RunHelp},
    {.name = "man", .summary = "prints the manual page, for man -l", .run = RunManual},

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
