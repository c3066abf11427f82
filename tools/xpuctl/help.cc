// help: prints what xpuctl can do, or what one of its commands does, from the table of commands.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tools/xpuctl/commands.h"

namespace xpud::xpuctl {
namespace {

void PrintOption(int indent, const Option& option) {
  std::printf("%*s%-22s %s\n", indent, "", option.Usage().c_str(), option.summary);
}

void PrintOptions(const char* title, std::span<const Option> options) {
  if (options.empty()) return;
  std::printf("\n%s:\n", title);
  for (const Option& option : options) PrintOption(2, option);
}

int PrintHelp() {
  std::printf("usage: xpuctl [OPTION...] [COMMAND]\n\n");
  for (const Command& command : Commands()) {
    std::printf("  %-10s %s\n", command.name, command.summary);
    if (*command.arguments) std::printf("  %-10s   %s\n", "", command.arguments);
    for (const Option& option : command.options) PrintOption(15, option);
  }
  std::printf("\nWithout a command: %s. \"xpuctl help COMMAND\" explains one. Options of all commands:\n",
              Commands()[0].name);
  for (const Option& option : GlobalOptions()) PrintOption(2, option);
  std::printf(
      "\nWithout --address, xpuctl finds the daemon as clients do: $XPUD_ADDRESS, /run/xpud/xpud.sock, the\n"
      "user's own. It never starts one. Its credentials for a gateway are $XPUD_TOKEN_FILE, or "
      "$XPUD_TLS_CERT\n"
      "and $XPUD_TLS_KEY, as for clients.\nexit status:");
  for (const ExitMeaning& meaning : ExitMeanings())
    std::printf("%s %d %s", meaning.code == kOk ? "" : ",", meaning.code, meaning.what);
  return std::fputs("\n", stdout) < 0 ? kError : kOk;
}

}  // namespace

int PrintHelpOf(const Command& command) {
  const char* const space = *command.arguments == '\0' ? "" : " ";
  std::printf("usage: xpuctl %s [OPTION...]%s%s\n\n%s\n", command.name, space, command.arguments,
              command.summary);
  PrintOptions("options", command.options);
  const std::vector<Option> globals = GlobalsOf(command);
  PrintOptions("options that other commands have too", globals);
  if (!command.exits.empty()) std::printf("\nexit status:\n");
  for (const CommandExit& each : command.exits) std::printf("  %-22s %s\n", each.status, each.what);
  if (command.outputs.empty()) return kOk;
  std::printf("\nformats of -o:");
  for (const Output output : command.outputs) std::printf(" %s", kOutputNames[static_cast<size_t>(output)]);
  return std::fputs("\n", stdout) < 0 ? kError : kOk;
}

int RunHelp(const Invocation& invocation) {
  if (invocation.arguments.empty()) return PrintHelp();
  const Command* const command = FindCommand(invocation.arguments[0]);
  if (command == nullptr)
    return RefuseUsage("help", absl::StrCat("there is no command ", invocation.arguments[0]));
  return PrintHelpOf(*command);
}

}  // namespace xpud::xpuctl
