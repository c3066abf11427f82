// man: prints the manual page, generated from the table of commands.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/shells.h"

namespace xpud::xpuctl {
namespace {

// Escapes text for roff.
std::string Plain(const std::string& text) {
  const std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}});
  return escaped.starts_with('.') ? "\\&" + escaped : escaped;
}

std::string Entry(const std::string& bold, const std::string& italic, const std::string& text) {
  return absl::StrCat(".TP\n\\fB", Plain(bold), "\\fR",
                      italic.empty() ? "" : " \\fI" + Plain(italic) + "\\fR", "\n", Plain(text), "\n");
}

std::string Outputs(const Command& command) {
  std::string names;
  for (const Output output : command.outputs)
    absl::StrAppend(&names, names.empty() ? "" : ", ", kOutputNames[static_cast<size_t>(output)]);
  return names.empty() ? "" : ".br\nFormats: " + names + (command.samples ? "; repeats with \\-w.\n" : ".\n");
}

std::string Describe(const Command& command) {
  std::string text = Entry(command.name, command.arguments, command.summary) + Outputs(command);
  if (command.options.empty()) return text;
  text += ".RS\n";
  for (const Option& option : command.options) text += Entry(option.name, option.value, option.summary);
  if (!command.exits.empty()) text += ".PP\nExit status:\n";
  for (const CommandExit& each : command.exits) text += Entry(each.status, "", each.what);
  return text + ".RE\n";
}

}  // namespace

std::string ManualPage() {
  std::string text = ".TH XPUCTL 1 \"\" \"xpud " XPUD_VERSION
                     "\"\n.SH NAME\nxpuctl \\- shows and controls the xpud daemon\n"
                     ".SH SYNOPSIS\n\\fBxpuctl\\fR [\\fIOPTION\\fR...] [\\fICOMMAND\\fR]\n.SH DESCRIPTION\n";
  absl::StrAppend(
      &text, "The default command is ", Commands()[0].name,
      ".\n"
      "xpuctl finds the daemon as clients do: $XPUD_ADDRESS, /run/xpud/xpud.sock, the user\\(aqs own.\n"
      "The control plane answers root and the daemon\\(aqs user; other users see, profile and close their "
      "own sessions. xpuctl never starts a daemon.\n"
      ".SH COMMANDS\n");
  for (const Command& command : Commands()) text += Describe(command);
  text += ".SH OPTIONS\n";
  for (const Option& option : GlobalOptions()) text += Entry(option.name, option.value, option.summary);
  text += ".SH EXIT STATUS\n";
  for (const ExitMeaning& meaning : ExitMeanings())
    text += Entry(absl::StrCat(meaning.code), "", meaning.what);
  return text + ".SH ENVIRONMENT\n" +
         Entry("XPUD_ADDRESS", "", "the daemon's socket, if --address is not given");
}

int RunManual(const Invocation&) { return std::fputs(ManualPage().c_str(), stdout) < 0 ? kError : kOk; }

}  // namespace xpud::xpuctl
