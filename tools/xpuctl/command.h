// A subcommand of xpuctl, and what it is run with. One file a subcommand; what there is stands in
// command_table.cc, from which the parser, the usage text, the completions and the manual page take it.
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

// What xpuctl exits with.
enum ExitCode { kOk = 0, kError = 1, kUsage = 2, kNoDaemon = 3, kNotAllHosts = 4 };
struct ExitMeaning {
  ExitCode code;
  const char* what;
};

// What -o names; kOutputNames in this order.
enum class Output { kTable, kWide, kJson, kJsonLines, kCsv };
inline constexpr const char* kOutputNames[] = {"table", "wide", "json", "jsonl", "csv"};

struct Option {
  const char* name;   // "-w", "--device"
  const char* value;  // what its value is called; empty: it takes none
  const char* summary;
  bool repeats = false;  // belongs to commands that show samples
};

struct Invocation {
  std::string address;             // --address; empty: searched for as clients do
  std::vector<std::string> hosts;  // --host; empty: the one at `address`
  Output output = Output::kTable;
  std::optional<double> every;  // -w: seconds from one sample to the next
  int64_t count = -1;           // -n: so many samples; negative: until Ctrl-C
  std::vector<std::string> arguments;
  std::map<std::string, std::string, std::less<>> options;  // the command's own, by name

  bool Has(std::string_view option) const { return options.contains(option); }
};

struct Command {
  const char* name;
  const char* arguments;  // as the usage text shows them
  size_t most_arguments;
  const char* summary;
  std::span<const Output> outputs;  // that it has; empty: -o is not for it
  bool samples;                     // takes -w SECONDS and -n COUNT, and several hosts
  std::span<const Option> options;  // its own
  int (*run)(const Invocation& invocation);
};

// The one table. Commands()[0] is what xpuctl does when no command is named.
std::span<const Command> Commands();
std::span<const Option> GlobalOptions();
std::span<const ExitMeaning> ExitMeanings();
const Command* FindCommand(std::string_view name);
// Null where `options` have none of that name.
const Option* FindOption(std::span<const Option> options, std::string_view name);

// Says on stderr what is wrong with `command`'s arguments; kUsage.
int RefuseUsage(const char* command, const std::string& reason);
// Prints `failure` on stderr. Returns kNoDaemon for NotFound, else kError.
int Report(const absl::Status& failure);

}  // namespace xpud::xpuctl
