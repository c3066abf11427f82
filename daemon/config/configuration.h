// The daemon's configuration: its command line, which overrides its configuration file. Values; thread-safe.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/option_table.h"

namespace xpud::config {

// A value that was set, and where.
struct Setting {
  const OptionRow* row;
  std::string text;
  std::string origin;        // "command line", "/etc/xpud/xpud.yaml:12:3"
  int line = 0, column = 0;  // in the file; 0: not in a file
};

// An error in a configuration file. Lines and columns count from 1; 0 means the whole file.
struct Problem {
  int line = 0, column = 0;
  std::string text;  // what was found and what is allowed
};

struct File {
  std::string path;
  std::vector<Setting> settings;
  std::vector<TenantQuota> quotas;
  std::optional<std::string> quotas_origin;
  std::vector<Problem> problems;  // in the file's order; if there are any, no setting may be used
};

// Returns "PATH:LINE:COLUMN: text".
std::string Describe(const File& file, const Problem& problem);

// Checks values that each are allowed, but with which a daemon would not start: together, or on this machine.
// Returns nullopt, or the key of the value to change and what is wrong.
std::optional<std::pair<std::string_view, std::string>> FindConflict(const Options& options);

// Always succeeds; errors are in File::problems.
File ParseFile(const std::string& path, const std::string& text);
// Returns NotFound if there is no file, and PermissionDenied or InvalidArgument if it cannot be read or other
// users may write it.
absl::StatusOr<File> ReadFile(const std::string& path);
// Returns the problems of a file by itself: those of its text, else what would keep a daemon from starting
// that has no other options, like the system's. `xpuctl config check` shows them.
std::vector<Problem> ProblemsOf(const File& file);

struct Configuration {
  Options options;
  std::map<std::string_view, std::string> origins;  // by name, for options that were set
  std::vector<std::string> overridden;              // keys of the file that the command line overrides
};

class CommandLine {
 public:
  // Returns InvalidArgument with the wrong argument and what is allowed.
  static absl::StatusOr<CommandLine> Parse(std::span<char* const> arguments);

  // The options of the command line only.
  const Options& options() const { return options_; }
  // Empty if there is no file.
  std::string config_path() const;
  // Combines the command line with the file, if there is one. Returns InvalidArgument with all problems of
  // the file, one per line, or with FindConflict's.
  absl::StatusOr<Configuration> Complete() const;

 private:
  Options options_;
  std::vector<Setting> settings_;
};

// The text of the daemon's `--help`.
std::string UsageText();
// A configuration file that documents every key and sets none.
std::string ExampleFile();

}  // namespace xpud::config
