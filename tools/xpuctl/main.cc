// xpuctl: asks the daemon who uses what. This file only parses the command line and picks the subcommand.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "tools/xpuctl/command.h"

namespace xpud::xpuctl {
namespace {

constexpr Command kCommands[] = {
    {"status", "", "the daemon, its devices and how many sessions there are", RunStatus},
    {"devices", "", "the devices, their memory and what ran on them", RunDevices},
    {"ps", "", "the sessions: who holds memory, who computes", RunPs},
    {"top", "[--once] [--interval SECONDS] [-n COUNT]", "use by device and session, live", RunTop},
    {"quota", "[default|USER|session:ID SIZE|none [--device N]]",
     "who may hold how much memory; sets it at once", RunQuota},
    {"version", "", "the version of xpuctl and of the daemon", RunVersion},
};

void PrintUsage(FILE* out) {
  std::fprintf(out, "usage: xpuctl [--address SOCKET] [-o table|json] COMMAND\n\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-8s %s\n", command.name, command.summary);
    if (*command.usage) std::fprintf(out, "  %-8s   %s\n", "", command.usage);
  }
  std::fprintf(out,
               "\nWithout --address the daemon is searched for as clients do: $XPUD_ADDRESS, "
               "/run/xpud/xpud.sock, the\n"
               "user's own. xpuctl never starts one.\n"
               "exit status: 0 done, 1 an error, 2 wrong usage, 3 no daemon is running\n");
}

int UsageError(const std::string& reason) {
  std::fprintf(stderr, "xpuctl: %s\n", reason.c_str());
  PrintUsage(stderr);
  return kUsage;
}

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

// The value of the global flag `name` at argv[at], written as "name value" or "name=value"; moves `at` past
// it.
std::optional<std::string> TakeFlag(std::string_view name, int argc, char** argv, int& at) {
  const std::string_view word = argv[at];
  if (word == name && at + 1 < argc) return argv[++at];
  if (word.size() > name.size() && word.substr(0, name.size()) == name && word[name.size()] == '=') {
    return std::string(word.substr(name.size() + 1));
  }
  return std::nullopt;
}

int Main(int argc, char** argv) {
  Invocation invocation;
  const Command* command = nullptr;
  for (int at = 1; at < argc; ++at) {
    const std::string word = argv[at];
    if (word == "-h" || word == "--help") {
      PrintUsage(stdout);
      return kOk;
    }
    if (auto address = TakeFlag("--address", argc, argv, at)) {
      invocation.address = *address;
    } else if (auto output = TakeFlag("-o", argc, argv, at)) {
      if (*output != "table" && *output != "json") return UsageError("-o is table or json, not " + *output);
      invocation.output = *output == "json" ? Output::kJson : Output::kTable;
    } else if (command != nullptr) {
      invocation.arguments.push_back(word);
    } else {
      command = FindCommand(word);
      if (command == nullptr) return UsageError("no command " + word);
    }
  }
  if (command == nullptr) return UsageError("a command is missing");
  return command->run(invocation);
}

}  // namespace

int RefuseArguments(const char* command, const Invocation& invocation) {
  if (invocation.arguments.empty()) return kOk;
  std::fprintf(stderr, "xpuctl %s takes no %s; see xpuctl --help\n", command,
               invocation.arguments[0].c_str());
  return kUsage;
}

}  // namespace xpud::xpuctl

int main(int argc, char** argv) { return xpud::xpuctl::Main(argc, argv); }
