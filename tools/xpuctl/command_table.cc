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
     "the daemon's socket, or HOST:PORT of its xpud-gateway; else it is searched for"},
    {"--host", "ADDRESS,...",
     "these, asked at the same time, with a column that says which; one for what is no view"},
    {"-o", "FORMAT", "table, wide (more columns), json, jsonl (a line a sample) or csv"},
    {"-w", "SECONDS", "shows it again every so many seconds, until Ctrl-C", true},
    {"-n", "COUNT", "ends after so many times", true},
    {"--help", "", "says this"},
};

constexpr ExitMeaning kExitMeanings[] = {{kOk, "done"},
                                         {kError, "an error"},
                                         {kUsage, "wrong usage"},
                                         {kNoDaemon, "no daemon is running"},
                                         {kNotAllHosts, "of the hosts that --host names, not all answered"}};

constexpr Option kTopOptions[] = {
    {"--once", "", "one sample, as -n 1"},
    {"--interval", "SECONDS", "as -w, which is 1 here"},
};
constexpr Option kQueryOptions[] = {
    {"--query-gpu", "FIELD,...", "the fields, by nvidia-smi's names"},
    {"--format", "csv,...", "csv, or csv with noheader, nounits or both"},
    {"--loop-ms", "N", "as -w, in milliseconds"},
    {"-i", "INDEX,...", "these devices only"},
    {"--help-query-gpu", "", "lists the fields"},
};
constexpr Option kEventOptions[] = {{"-w", "", "goes on with what happens from now on, until Ctrl-C"}};
constexpr Option kLogOptions[] = {
    {"-f", "", "goes on with what is logged from now on, until Ctrl-C; -w is the same"},
    {"-w", "", "goes on with what is logged from now on, until Ctrl-C"},
    {"--level", "LEVEL", "lines of this level or worse: trace, debug, info, warn, error"},
    {"-n", "LINES", "begins with so many of those there are"},
};
constexpr Option kQuotaOptions[] = {{"--device", "N", "of this device only"}};

constexpr Command kCommands[] = {
    {"status", "", 0, "the daemon, its devices and how many sessions there are", kEach, true, {}, RunStatus},
    {"devices", "", 0, "the devices, their memory and what ran on them", kEach, true, {}, RunDevices},
    {"ps", "", 0, "the sessions: who holds memory, who computes", kEach, true, {}, RunPs},
    {"top", "", 0, "use by device and session, live", kEach, true, kTopOptions, RunTop},
    {"quota", "[default|USER|USER/TENANT|session:ID SIZE|none]", 2,
     "who may hold how much memory; sets it at once", kEach, true, kQuotaOptions, RunQuota},
    {"query", "", 0, "fields of devices as nvidia-smi prints them", {}, true, kQueryOptions, RunQuery},
    {"events", "", 0, "what happened in the daemon, newest last", kDocuments, false, kEventOptions,
     RunEvents},
    {"logs", "", 0, "the last lines of the daemon's log", kDocuments, false, kLogOptions, RunLogs},
    {"kill",
     "SESSION",
     1,
     "closes a session; its client is told that an operator did",
     {},
     false,
     {},
     RunKill},
    {"drain",
     "[on|off]",
     1,
     "drained, the daemon refuses new sessions; those that are there go on",
     {},
     false,
     {},
     RunDrain},
    {"config",
     "[check [FILE] | show | example]",
     2,
     "checks a configuration file (or " XPUD_CONFIG_FILE
     "), shows what is in force, or a file that documents all",
     kConfigOutputs,
     false,
     {},
     RunConfig},
    {"doctor",
     "",
     0,
     "whether xpud can work on this host, and what to do where not",
     kTableOrJson,
     false,
     {},
     RunDoctor},
    {"version", "", 0, "the version of xpuctl and of the daemon", kTableOrJson, false, {}, RunVersion},
    {"completion", "bash|zsh|fish", 1, "what a shell reads to complete these", {}, false, {}, RunCompletion},
    {"man", "", 0, "the manual page, as man -l takes it", {}, false, {}, RunManual},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }
std::span<const Option> GlobalOptions() { return kGlobal; }
std::span<const ExitMeaning> ExitMeanings() { return kExitMeanings; }

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
  std::fprintf(stderr, "xpuctl %s: %s; see xpuctl --help\n", command, reason.c_str());
  return kUsage;
}

int Report(const absl::Status& failure) {
  std::fprintf(stderr, "xpuctl: %s\n",
               PrintableText(std::string_view(failure.message().data(), failure.message().size())).c_str());
  return absl::IsNotFound(failure) ? kNoDaemon : kError;
}

}  // namespace xpud::xpuctl
