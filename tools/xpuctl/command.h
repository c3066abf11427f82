// A subcommand of xpuctl, and what it is run with. One file a subcommand.
#pragma once

#include <string>
#include <vector>

namespace xpud::xpuctl {

// What xpuctl exits with; `xpuctl --help` says the same.
enum ExitCode { kOk = 0, kError = 1, kUsage = 2, kNoDaemon = 3 };

enum class Output { kTable, kJson };

struct Invocation {
  std::string address;  // --address; empty: searched for as clients do
  Output output = Output::kTable;
  std::vector<std::string> arguments;  // what follows the subcommand, global flags taken out
};

struct Command {
  const char* name;
  const char* usage;  // its own arguments
  const char* summary;
  int (*run)(const Invocation& invocation);
};

int RunStatus(const Invocation& invocation);
int RunDevices(const Invocation& invocation);
int RunPs(const Invocation& invocation);
int RunTop(const Invocation& invocation);
int RunQuota(const Invocation& invocation);
int RunVersion(const Invocation& invocation);

// Says on stderr that `command` takes no such argument; kUsage. kOk when there is none.
int RefuseArguments(const char* command, const Invocation& invocation);

}  // namespace xpud::xpuctl
