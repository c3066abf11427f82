// config: validates a configuration file with the daemon's own code, and shows the configuration of a running
// daemon.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "daemon/config/configuration.h"
#include "proto/base/text.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/config_file.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

std::string CheckText(const config::File& file, const std::vector<config::Problem>& problems) {
  if (problems.empty()) {
    const size_t keys = file.settings.size() + (file.quotas_origin ? 1 : 0);
    return absl::StrCat(PrintableText(file.path), ": valid, with ", keys, keys == 1 ? " key\n" : " keys\n");
  }
  std::string text;
  for (const config::Problem& problem : problems)
    absl::StrAppend(&text, PrintableText(config::Describe(file, problem)), "\n");
  return text;
}

std::string CheckJson(const config::File& file, const std::vector<config::Problem>& problems) {
  std::string text = absl::StrCat("{\"file\":", JsonString(file.path),
                                  ",\"valid\":", problems.empty() ? "true" : "false", ",\"problems\":[");
  for (const config::Problem& problem : problems) {
    absl::StrAppend(&text, &problem == &problems[0] ? "" : ",", "{\"line\":", problem.line,
                    ",\"column\":", problem.column, ",\"text\":", JsonString(problem.text), "}");
  }
  return text + "]}";
}

// An unreadable file is an error, like an invalid one.
int Check(const Invocation& invocation) {
  if (invocation.output != Output::kTable && invocation.output != Output::kJson)
    return RefuseUsage("config", "check supports -o table and json");
  const std::string path = invocation.arguments.size() > 1 ? invocation.arguments[1] : XPUD_CONFIG_FILE;
  const auto file = config::ReadFile(path);
  if (!file.ok()) {
    (void)Report(file.status());
    return kError;
  }
  const bool table = invocation.output == Output::kTable;
  const std::vector<config::Problem> problems = config::ProblemsOf(*file);
  std::fputs((table ? CheckText(*file, problems) : Document(CheckJson(*file, problems))).c_str(), stdout);
  return problems.empty() ? kOk : kError;
}

int Show(const Invocation& invocation) {
  return ShowView<v1::GetConfigResponse>(
      invocation, &control::Client::GetConfig,
      {ConfigText, [](const auto& response) { return CsvOf(response.time_ns(), response.values()); }});
}

}  // namespace

int RunConfig(const Invocation& invocation) {
  const std::vector<std::string>& words = invocation.arguments;
  const std::string what = words.empty() ? "show" : words[0];
  if (what == "check") return Check(invocation);
  if (words.size() > 1) return RefuseUsage("config", absl::StrCat(what, " does not take ", words[1]));
  if (what == "show") return Show(invocation);
  if (what != "example") return RefuseUsage("config", absl::StrCat("use check, show or example, not ", what));
  std::fputs(config::ExampleFile().c_str(), stdout);
  return kOk;
}

}  // namespace xpud::xpuctl
