// What a daemon goes by: its command line and, below that, its configuration file. Values; any thread.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/option_table.h"

namespace xpud::config {

// One value that somebody gave.
struct Setting {
  const OptionRow* row;
  std::string text;
  std::string origin;  // "command line", "/etc/xpud/xpud.yaml:12:3"
};

// Something in a configuration file that is not allowed. Lines and columns count from 1; 0: the file itself.
struct Problem {
  int line = 0, column = 0;
  std::string text;  // what was found, and what is allowed
};

struct File {
  std::string path;
  std::vector<Setting> settings;
  std::vector<TenantQuota> quotas;
  std::optional<std::string> quotas_origin;
  std::vector<Problem> problems;  // all, as they stand in the file; with any, nothing of it is to be used
};

// "PATH:LINE:COLUMN: text".
std::string Describe(const File& file, const Problem& problem);

// Never fails: what is wrong is a problem of the file.
File ParseFile(const std::string& path, const std::string& text);
// NotFound: there is none. PermissionDenied, InvalidArgument: it cannot be read, or others may write it.
absl::StatusOr<File> ReadFile(const std::string& path);

struct Configuration {
  Options options;
  std::map<std::string_view, std::string> origins;  // by name, of what was set
  std::vector<std::string> overridden;              // keys of the file that the command line has, too
};

class CommandLine {
 public:
  // InvalidArgument names the argument that is wrong and what is allowed.
  static absl::StatusOr<CommandLine> Parse(std::span<char* const> arguments);

  // What the command line alone says.
  const Options& options() const { return options_; }
  // Empty: there is none.
  std::string config_path() const;
  // With the file, if there is one. InvalidArgument: every problem of it, one a line.
  absl::StatusOr<Configuration> Complete() const;

 private:
  Options options_;
  std::vector<Setting> settings_;
};

// The daemon's `--help`.
std::string UsageText();
// A configuration file that documents every key, and sets none.
std::string ExampleFile();

}  // namespace xpud::config
