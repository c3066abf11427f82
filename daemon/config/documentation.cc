// Generates the help text and the example file from the option table.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/config/configuration.h"

namespace xpud::config {
namespace {

std::string Wrap(const std::string& text, const std::string& indent, size_t width) {
  std::string out, line = indent;
  for (const auto word : absl::StrSplit(text, ' ')) {
    if (line.size() > indent.size() && line.size() + word.size() >= width) {
      absl::StrAppend(&out, line, "\n");
      line = indent;
    }
    absl::StrAppend(&line, line.size() > indent.size() ? " " : "", word);
  }
  return absl::StrCat(out, line, "\n");
}

std::string HelpOf(const OptionRow& row) {
  std::string help(row.help);
  if (!row.value.empty()) absl::StrAppend(&help, " (default: ", row.Default(), ")");
  return help;
}

std::string Sentence(std::string_view text) {
  std::string sentence(text);
  sentence[0] = static_cast<char>(toupper(sentence[0]));
  return absl::StrCat(sentence, sentence.ends_with('.') ? "" : ".");
}

std::string ExampleOf(const OptionRow& row) {
  const std::string value = row.example.empty() ? row.type.show(Options{}) : std::string(row.example);
  const std::string details = absl::StrCat(
      row.value.empty() ? "True or false" : absl::StrCat(std::string(row.value), ": ", row.type.allowed),
      ". Default: ", row.Default(), ". ", row.live ? "Changes on reload." : "Needs a restart.");
  return absl::StrCat("\n", Wrap(Sentence(row.help), "# ", 110), Wrap(details, "# ", 110), "#",
                      std::string(row.name), ": ", value, "\n");
}

}  // namespace

std::string UsageText() {
  constexpr size_t kColumn = 25;
  std::string text = "xpud: owns this machine's accelerators and serves them to clients.\n\n";
  for (const OptionRow& row : OptionRows()) {
    std::string head =
        absl::StrCat("  --", std::string(row.name), row.value.empty() ? "" : " ", std::string(row.value));
    if (head.size() >= kColumn) {
      absl::StrAppend(&text, head, "\n");
      head.clear();
    }
    std::string body = Wrap(HelpOf(row), std::string(kColumn, ' '), 115);
    text += head + body.substr(head.size());
  }
  return text +
         "\nSIGHUP makes xpud read the configuration file again; `xpuctl config check` reports its errors.\n";
}

std::string ExampleFile() {
  std::string text =
      "# The configuration of xpud, with its defaults. Remove a '#' to set a key. The command line overrides "
      "this "
      "file.\n"
      "# `xpuctl config check FILE` reports errors in a file; `systemctl reload xpud` makes xpud read it "
      "again.\n";
  for (const OptionRow& row : OptionRows()) {
    if (row.where == OptionRow::kBoth) text += ExampleOf(row);
  }
  absl::StrAppend(
      &text, "\n", Wrap(std::string(kQuotasHelp), "# ", 110),
      Wrap("A map of users to sizes with their units. Default: none. Changes on reload.", "# ", 110), "#",
      std::string(kQuotasKey), ":\n#  alice: 16GiB\n#  1001: 512MiB\n#  xpud-gateway/team-a: 8GiB\n");
  return text;
}

}  // namespace xpud::config
