// A subcommand of xpuctl, and its invocation. Each subcommand has a file of its own. The table in
// command_table.cc defines the parser, the usage text, the completions and the manual page.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace xpud::xpuctl {

// The exit statuses of xpuctl.
enum ExitCode { kOk = 0, kError = 1, kUsage = 2, kNoDaemon = 3, kNotAllHosts = 4 };
struct ExitMeaning {
  ExitCode code;
  const char* what;
};

// The values of -o, in the order of kOutputNames.
enum class Output { kTable, kWide, kJson, kJsonLines, kCsv };
inline constexpr const char* kOutputNames[] = {"table", "wide", "json", "jsonl", "csv"};

struct Option {
  const char* name;   // "-w", "--device"
  const char* value;  // placeholder of its value; empty: a switch; "[=VALUE]": the value may be left out
  const char* summary;
  bool repeats = false;  // for commands that show samples
  bool many = false;     // may be given several times; otherwise the last one counts

  bool MayHaveValue() const { return *value != '\0'; }
  // Whether the next word is its value, unless "name=value" has it.
  bool NeedsValue() const { return MayHaveValue() && *value != '['; }
  // As shown in the usage text: "--device N", "--wait[=SECONDS]".
  std::string Usage() const { return std::string(name) + (NeedsValue() ? " " : "") + value; }
};

// An exit status of a command that has its own.
struct CommandExit {
  const char* status;
  const char* what;
};

struct Invocation {
  std::string address;             // --address; empty: find the daemon as clients do
  std::vector<std::string> hosts;  // --host; empty: only the daemon at `address`
  Output output = Output::kTable;
  std::optional<double> every;  // -w: seconds from one sample to the next
  int64_t count = -1;           // -n: number of samples; negative: until Ctrl-C
  std::vector<std::string> arguments;
  std::vector<std::string> program;                             // the words after "--"
  std::map<std::string, std::string, std::less<>> options;      // options of the command, by name
  std::multimap<std::string, std::string, std::less<>> values;  // of those that may be given several times

  bool Has(std::string_view option) const { return options.contains(option); }
};

struct Command {
  const char* name;
  const char* arguments = "";  // as shown in the usage text
  size_t most_arguments = 0;
  const char* summary;
  std::span<const Output> outputs = {};     // supported formats; empty: -o is not supported
  bool samples = false;                     // supports -w SECONDS, -n COUNT and several hosts
  std::span<const Option> options = {};     // options of this command
  bool runs_program = false;                // takes words after "--"
  std::span<const CommandExit> exits = {};  // empty: those of ExitMeanings()
  int usage_error = kUsage;                 // its exit status for wrong usage
  int (*run)(const Invocation& invocation);
};

// The table of commands. Commands()[0] is the default command.
std::span<const Command> Commands();
std::span<const Option> GlobalOptions();
// Returns the global options that a command supports, without those that its own options hide.
std::vector<Option> GlobalsOf(const Command& command);
std::span<const ExitMeaning> ExitMeanings();
const Command* FindCommand(std::string_view name);
// Returns null if `options` has no option of that name.
const Option* FindOption(std::span<const Option> options, std::string_view name);

// Prints an error about `command`'s arguments to stderr, in one line. Returns kUsage.
int RefuseUsage(const char* command, const std::string& reason);
// Prints `failure` to stderr. Returns kNoDaemon for NotFound, otherwise kError.
int Report(const absl::Status& failure);

}  // namespace xpud::xpuctl
