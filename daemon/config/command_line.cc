#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/configuration.h"
#include "daemon/telemetry/endpoint.h"
#include "proto/base/status_macros.h"
#include "proto/base/unix_address.h"

namespace xpud::config {
namespace {

constexpr std::string_view kOrigin = "command line";

absl::Status Unknown(const std::string& argument) {
  std::string_view name = argument;
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  const std::string_view nearest = NearestName(name, Source::kCommandLine);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown argument ", argument,
      nearest.empty() ? "" : absl::StrCat(" (did you mean --", std::string(nearest), "?)"), "; see --help"));
}

absl::Status Apply(const Setting& setting, Source source, Options& options) {
  return setting.row->type.read(options, setting.text, source);
}

std::optional<std::pair<std::string_view, std::string>> ConflictOfFiles(const Options& options) {
  const bool has_size = options.move_out_files.value_or(0) != 0;
  if (has_size && options.move_out_folder.empty())
    return {{"move-out-files", "there is no folder for these files; set move-out-folder"}};
  if (options.move_out_folder.empty()) return std::nullopt;
  if (!has_size)
    return {{"move-out-folder", "how much its file may hold is not set; set move-out-files, such as 200GiB"}};
  if (options.move_out == 0) {
    return {
        {"move-out-folder",
         "move-out is 0, but memory goes to files by way of host memory; set move-out to 128MiB or more"}};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::pair<std::string_view, std::string>> FindConflict(const Options& options) {
  if (const auto address = UnixAddress(options.socket); !address.ok())
    return {{"socket", std::string(address.status().message())}};
  if (!options.driver.empty() && access(options.driver.c_str(), R_OK) != 0)
    return {{"driver", absl::StrCat("cannot read ", options.driver, ": ", strerror(errno))}};
  // The confined daemon can create and remove sockets in one folder only.
  const std::filesystem::path folder = std::filesystem::path(options.socket).parent_path();
  const std::filesystem::path metrics(telemetry::UnixPathOf(options.metrics_address));
  if (!metrics.empty() && metrics.parent_path() != folder) {
    return {{"metrics-listen", absl::StrCat("the metrics' socket ", metrics.string(),
                                            " has to lie where --socket does, in ", folder.string())}};
  }
  return ConflictOfFiles(options);
}

std::vector<Problem> ProblemsOf(const File& file) {
  if (!file.problems.empty()) return file.problems;
  Options options;
  for (const Setting& setting : file.settings) (void)Apply(setting, Source::kFile, options);
  const auto conflict = FindConflict(options);
  if (!conflict) return {};
  const auto setting =
      std::ranges::find(file.settings, conflict->first, [](const Setting& each) { return each.row->name; });
  if (setting == file.settings.end())
    return {{0, 0, absl::StrCat(std::string(conflict->first), ": ", conflict->second)}};
  return {
      {setting->line, setting->column, absl::StrCat(std::string(conflict->first), ": ", conflict->second)}};
}

absl::StatusOr<CommandLine> CommandLine::Parse(std::span<char* const> arguments) {
  CommandLine line;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i];
    const OptionRow* row =
        argument.starts_with("--") ? FindRow(std::string_view(argument).substr(2)) : nullptr;
    if (row == nullptr) return Unknown(argument);
    Setting setting{row, "true", std::string(kOrigin)};
    if (!row->value.empty()) {
      if (i + 1 == arguments.size())
        return absl::InvalidArgumentError(absl::StrCat(argument, " needs a value; see --help"));
      setting.text = arguments[++i];
    }
    if (const absl::Status status = Apply(setting, Source::kCommandLine, line.options_); !status.ok())
      return absl::InvalidArgumentError(absl::StrCat(argument, ": ", status.message()));
    line.settings_.push_back(std::move(setting));
  }
  return line;
}

std::string CommandLine::config_path() const {
  return options_.config.starts_with('-') ? options_.config.substr(1) : options_.config;
}

absl::StatusOr<Configuration> CommandLine::Complete() const {
  Configuration all;
  File file;
  if (!config_path().empty()) {
    auto read = ReadFile(config_path());
    const bool may_be_absent = options_.config.starts_with('-');
    if (!read.ok() && !(absl::IsNotFound(read.status()) && may_be_absent)) return read.status();
    if (read.ok()) file = *std::move(read);
  }
  if (!file.problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(
        file.problems, "\n", [&](std::string* out, const Problem& p) { out->append(Describe(file, p)); }));
  }
  for (const Setting& setting : file.settings) {
    RETURN_IF_ERROR(Apply(setting, Source::kFile, all.options));
    all.origins[setting.row->name] = setting.origin;
  }
  all.options.quotas = file.quotas;
  if (file.quotas_origin) all.origins[kQuotasKey] = *file.quotas_origin;
  for (const Setting& setting : settings_) {
    RETURN_IF_ERROR(Apply(setting, Source::kCommandLine, all.options));
    std::string& origin = all.origins[setting.row->name];
    if (!origin.empty() && origin != setting.origin) all.overridden.emplace_back(setting.row->name);
    origin = setting.origin;
  }
  if (const auto conflict = FindConflict(all.options)) {
    const std::string origin = all.origins[conflict->first];
    return absl::InvalidArgumentError(absl::StrCat(origin, origin.empty() ? "" : ": ",
                                                   std::string(conflict->first), ": ", conflict->second));
  }
  return all;
}

}  // namespace xpud::config
