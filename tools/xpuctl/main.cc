// xpuctl: shows and controls the daemon. This file parses the command line and calls the subcommand.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/output.h"
#include "proto/base/text.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/commands.h"

namespace xpud::xpuctl {
namespace {

// Sets the global option `name`. Returns "" or the reason why `value` is wrong.
std::string SetGlobal(std::string_view name, const std::string& value, Invocation& invocation) {
  if (name == "--address") {
    invocation.address = value;
  } else if (name == "--host") {
    invocation.hosts = absl::StrSplit(value, ',');
    if (std::ranges::find(invocation.hosts, "") != invocation.hosts.end())
      return "--host takes comma-separated addresses, not " + value;
  } else if (name == "-o") {
    const auto* found = std::ranges::find(kOutputNames, value);
    if (found == std::end(kOutputNames)) return "-o must be table, wide, json, jsonl or csv, not " + value;
    invocation.output = static_cast<Output>(found - std::begin(kOutputNames));
  } else if (name == "-w") {
    double seconds = 0;
    if (!absl::SimpleAtod(value, &seconds) || !(seconds >= 0.05 && seconds <= 1e6))
      return "-w takes seconds (0.05 to 10^6), not " + value;
    invocation.every = seconds;
  } else if (!absl::SimpleAtoi(value, &invocation.count) || invocation.count < 1) {
    return "-n takes a number of samples, not " + value;
  }
  return "";
}

// Parses the words in one pass. A command's option hides a global one of the same name.
class Parser {
 public:
  Parser(int argc, char** argv) : words_(argv + 1, argv + argc) {}

  // Returns "" or an error.
  std::string Parse() {
    for (at_ = 0; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      std::string trouble;
      if (word == "--" && command_ != nullptr && command_->runs_program) {
        invocation_.program.assign(words_.begin() + static_cast<std::ptrdiff_t>(at_) + 1, words_.end());
        break;
      }
      if (word == "-h") {
        help_ = true;
      } else if (word.size() > 1 && word[0] == '-') {
        trouble = TakeOption(word);
      } else if (command_ == nullptr) {
        command_ = FindCommand(word);
        if (command_ == nullptr) trouble = "unknown command " + word;
        named_ = command_ != nullptr;
      } else {
        invocation_.arguments.push_back(word);
      }
      if (!trouble.empty()) return trouble;
    }
    if (command_ == nullptr) command_ = &Commands()[0];
    return TakeHosts();
  }

  bool help() const { return help_; }
  bool version() const { return version_; }
  bool named() const { return named_; }  // whether a command was named
  // REQUIRES: named(), or Parse() found no error.
  const Command& command() const { return *command_; }
  const Invocation& invocation() const { return invocation_; }

 private:
  // Takes "name value", "name=value", or "name" for a switch.
  std::string TakeOption(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const Option* own = command_ == nullptr ? nullptr : FindOption(command_->options, name);
    const Option* option = own != nullptr ? own : FindOption(GlobalOptions(), name);
    if (option == nullptr) return "unknown option " + name;
    std::string value;
    if (!option->NeedsValue() && (!option->MayHaveValue() || equals == std::string::npos)) {
      if (equals != std::string::npos) return name + " does not take a value";
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (at_ + 1 < words_.size()) {
      value = words_[++at_];
    } else {
      return name + " needs a value: " + option->value;
    }
    if (own == nullptr && option->repeats) repeats_ = name;
    if (own != nullptr) {
      invocation_.options[name] = value;
      if (own->many) invocation_.values.emplace(name, value);
    } else if (name == "--help") {
      help_ = true;
    } else if (name == "--version") {
      version_ = true;
    } else {
      output_named_ |= name == "-o";
      return SetGlobal(name, value, invocation_);
    }
    return "";
  }

  // Views can show several hosts; other commands take one.
  std::string TakeHosts() {
    std::vector<std::string>& hosts = invocation_.hosts;
    if (!hosts.empty() && !invocation_.address.empty()) return "--address and --host exclude each other";
    if (!command_->samples && hosts.size() > 1) return absl::StrCat(command_->name, " takes one host only");
    if (!command_->samples && !hosts.empty()) {
      invocation_.address = hosts[0];
      hosts.clear();
    }
    return Check();
  }

  std::string Check() const {
    const std::string name = command_->name;
    if (invocation_.arguments.size() > command_->most_arguments)
      return absl::StrCat(name, " does not take ", invocation_.arguments[command_->most_arguments]);
    if (!repeats_.empty() && !command_->samples) return absl::StrCat(name, " does not take ", repeats_);
    if (output_named_ && std::ranges::find(command_->outputs, invocation_.output) == command_->outputs.end())
      return absl::StrCat(name, " does not support -o ",
                          kOutputNames[static_cast<size_t>(invocation_.output)]);
    return "";
  }

  const std::vector<std::string> words_;
  size_t at_ = 0;
  bool help_ = false, version_ = false, named_ = false, output_named_ = false;
  std::string repeats_;  // the option for commands that show samples, if one was given
  const Command* command_ = nullptr;
  Invocation invocation_;
};

int Main(int argc, char** argv) {
  Parser parser(argc, argv);
  const std::string trouble = parser.Parse();
  if (parser.help()) return parser.named() ? PrintHelpOf(parser.command()) : RunHelp({});
  if (parser.version()) return std::puts("xpuctl " XPUD_VERSION) < 0 ? kError : kOk;
  if (!trouble.empty()) {
    const std::string help =
        parser.named() ? absl::StrCat("xpuctl ", parser.command().name, " --help") : "xpuctl --help";
    std::fprintf(stderr, "xpuctl: %s; see %s\n", PrintableText(trouble).c_str(), help.c_str());
    return parser.named() ? parser.command().usage_error : kUsage;
  }
  return parser.command().run(parser.invocation());
}

}  // namespace
}  // namespace xpud::xpuctl

int main(int argc, char** argv) {
  const int status = xpud::xpuctl::Main(argc, argv);
  const bool written = xpud::FinishOutput("xpuctl");
  return status == xpud::xpuctl::kOk && !written ? xpud::xpuctl::kError : status;
}
