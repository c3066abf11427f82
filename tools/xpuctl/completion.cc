// completion: prints scripts with which shells complete xpuctl's commands, options and values.
#include <cctype>
#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/query_fields.h"
#include "tools/xpuctl/shells.h"

namespace xpud::xpuctl {
namespace {

// Puts text into single quotes.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::vector<std::string> NamesOfCommands() {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.emplace_back(command.name);
  return names;
}

// Returns the words that a command's first argument can be: "[on|off]" has two, "USER" has none.
std::vector<std::string> Choices(const Command& command) {
  const std::string first = std::vector<std::string>(absl::StrSplit(command.arguments, ' ')).front();
  std::vector<std::string> words;
  for (const absl::string_view word : absl::StrSplit(first, absl::ByAnyChar("[]|"), absl::SkipEmpty())) {
    if (word == "COMMAND") return NamesOfCommands();
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == word.npos) words.emplace_back(word);
  }
  return words;
}

// Returns the values that an option can have, or "" if they are free.
std::string Values(const Option& option) {
  const std::string_view name = option.name;
  if (name == "-o") return absl::StrJoin(kOutputNames, " ");
  if (name == "--format") return "csv csv,noheader csv,nounits csv,noheader,nounits";
  if (name != "--query-gpu") return "";
  return absl::StrJoin(QueryFields(), " ",
                       [](std::string* out, const QueryField& field) { *out += field.name; });
}

std::string Names(std::span<const Option> options) {
  return absl::StrJoin(options, " ", [](std::string* out, const Option& option) { *out += option.name; });
}

std::string BashReply(const Option& option) {
  if (std::string_view(option.name) == "--address") return "compgen -f -- \"$cur\"";
  return absl::StrCat("compgen -W ", Quoted(Values(option)), " -- \"$cur\"");
}

// Returns a case of bash for each option that takes a value, and for each switch that hides a global option
// with a value.
std::string BashValues(std::span<const Option> options) {
  std::string text;
  for (const Option& option : options) {
    if (option.NeedsValue()) {
      absl::StrAppend(&text, "    *:", option.name, ") COMPREPLY=($(", BashReply(option), ")); return ;;\n");
    } else if (FindOption(GlobalOptions(), option.name) != nullptr) {
      absl::StrAppend(&text, "    *:", option.name, ") ;;\n");
    }
  }
  return text;
}

std::string BashValuesOf(const Command& command) {
  return absl::StrReplaceAll(BashValues(command.options),
                             {{"    *:", absl::StrCat("    ", command.name, ":")}});
}

std::string GlobalsWithValues() {
  std::vector<std::string> names;
  for (const Option& option : GlobalOptions()) {
    if (option.NeedsValue()) names.emplace_back(option.name);
  }
  return absl::StrJoin(names, "|");
}

// Returns "--once[one sample]" or "-o[...]:FORMAT:(table wide)", for zsh's _arguments.
std::string ZshOption(const Option& option) {
  const std::string summary = absl::StrReplaceAll(option.summary, {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
  std::string spec = absl::StrCat(option.name, "[", summary, "]");
  if (option.NeedsValue()) {
    const std::string values = Values(option);
    absl::StrAppend(&spec, ":", option.value, ":", values.empty() ? "" : absl::StrCat("(", values, ")"));
    if (std::string_view(option.name) == "--address") spec += "_files";
  }
  return Quoted(spec);
}

std::string FishOption(const std::string& condition, const Option& option) {
  const std::string_view name = option.name;
  const bool is_long = name.starts_with("--");
  std::string text = absl::StrCat("complete -c xpuctl ", condition, is_long ? "-l " : "-s ",
                                  option.name + (is_long ? 2 : 1), " -d ", Quoted(option.summary));
  if (option.NeedsValue()) text += name == "--address" ? " -r -F" : " -x";
  if (const std::string values = Values(option); !values.empty())
    absl::StrAppend(&text, " -a ", Quoted(values));
  return text + "\n";
}

}  // namespace

std::string BashCompletion() {
  std::string words, values;
  for (const Command& command : Commands()) {
    absl::StrAppend(
        &words, "    ", command.name, ") words='",
        absl::StripAsciiWhitespace(absl::StrCat(absl::StrJoin(Choices(command), " "), " ",
                                                Names(command.options), " ", Names(GlobalsOf(command)))),
        "' ;;\n");
    values += BashValuesOf(command);
  }
  return absl::StrCat(
      "_xpuctl() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= words i\n"
      "  if [[ $cur == = ]]; then cur=; elif [[ $previous == = ]]; then "
      "previous=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${COMP_WORDS[i]} in\n"
      "      ",
      GlobalsWithValues(),
      ") ((i++)) ;;\n"
      "      -*|=) ;;\n"
      "      *) command=${COMP_WORDS[i]}; break ;;\n"
      "    esac\n"
      "  done\n"
      "  case $command:$previous in\n",
      values, BashValues(GlobalOptions()),
      "  esac\n"
      "  case $command in\n",
      words, "    *) words='", absl::StrJoin(NamesOfCommands(), " "), " ", Names(GlobalOptions()),
      "' ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "}\n"
      "complete -F _xpuctl xpuctl\n");
}

std::string ZshCompletion() {
  std::string commands, cases, globals;
  for (const Option& option : GlobalOptions()) absl::StrAppend(&globals, " ", ZshOption(option));
  for (const Command& command : Commands()) {
    absl::StrAppend(&commands, "    ", Quoted(absl::StrCat(command.name, ":", command.summary)), "\n");
    absl::StrAppend(&cases, "        ", command.name, ") _arguments");
    for (const Option& option : command.options) absl::StrAppend(&cases, " ", ZshOption(option));
    const std::vector<std::string> choices = Choices(command);
    if (!choices.empty())
      absl::StrAppend(&cases, " '1:", command.name, ":(", absl::StrJoin(choices, " "), ")'");
    cases += " $globals ;;\n";
  }
  return absl::StrCat(
      "#compdef xpuctl\n_xpuctl() {\n  local state\n  local -a commands globals\n  commands=(\n", commands,
      "  )\n  globals=(", globals,
      ")\n  _arguments -C $globals '1:command:->command' '*::argument:->rest'\n"
      "  case $state in\n    command) _describe command commands ;;\n    rest)\n"
      "      case $words[1] in\n",
      cases, "      esac ;;\n  esac\n}\n_xpuctl \"$@\"\n");
}

std::string FishCompletion() {
  std::string text = "complete -c xpuctl -f\n";
  for (const Option& option : GlobalOptions()) text += FishOption("", option);
  for (const Command& command : Commands()) {
    absl::StrAppend(&text, "complete -c xpuctl -n __fish_use_subcommand -a ", command.name, " -d ",
                    Quoted(command.summary), "\n");
    const std::string here = absl::StrCat("-n '__fish_seen_subcommand_from ", command.name, "' ");
    for (const Option& option : command.options) text += FishOption(here, option);
    if (const auto choices = Choices(command); !choices.empty())
      absl::StrAppend(&text, "complete -c xpuctl ", here, "-a '", absl::StrJoin(choices, " "), "'\n");
  }
  return text;
}

int RunCompletion(const Invocation& invocation) {
  const std::string shell = invocation.arguments.empty() ? "" : invocation.arguments[0];
  if (shell == "bash") return std::fputs(BashCompletion().c_str(), stdout) < 0 ? kError : kOk;
  if (shell == "zsh") return std::fputs(ZshCompletion().c_str(), stdout) < 0 ? kError : kOk;
  if (shell == "fish") return std::fputs(FishCompletion().c_str(), stdout) < 0 ? kError : kOk;
  return RefuseUsage("completion", "use bash, zsh or fish");
}

}  // namespace xpud::xpuctl
