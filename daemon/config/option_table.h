// The table of options. The command line's parser, the usage text, the validation of the configuration file
// and its example derive from it. Thread-safe.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "daemon/config/options.h"

namespace xpud::config {

enum class Source { kCommandLine, kFile };

// How values of a type are parsed and printed.
struct ValueType {
  std::string allowed;  // for messages; empty: a switch, which takes no value on the command line
  std::function<absl::Status(Options& options, const std::string& text, Source source)> read;
  std::function<std::string(const Options& options)> show;  // in the syntax of `read`; empty: not set
  std::function<void(const Options& from, Options& to)> copy;
};

struct OptionRow {
  std::string_view name;        // "socket-mode": --socket-mode on the command line, the key in the file
  std::string_view value = {};  // placeholder of the value; empty: a switch
  std::string_view help;
  // The default in words; empty: the value in Options{}.
  std::string_view fallback = {};
  std::string_view example = {};  // for the example file, if Options{} has no value
  enum Where { kBoth, kCommandLineOnly } where = kBoth;
  bool live = false;  // SIGHUP applies a new value to a running daemon
  ValueType type;

  std::string Default() const;
};

// The rows, in the order of the help text.
std::span<const OptionRow> OptionRows();
// Returns null if there is no such option.
const OptionRow* FindRow(std::string_view name);
// Returns the option allowed in `source` whose name is closest to `name`, or "" if none is close.
std::string_view NearestName(std::string_view name, Source source);

// The file's only key that is not an option: a map from tenants to sizes.
inline constexpr std::string_view kQuotasKey = "quotas";
inline constexpr std::string_view kQuotasHelp =
    "How much of each device all processes of a user may hold, by the user's name or number, or USER/TENANT "
    "for one tenant "
    "of that user's gateway. An account that is newer than the daemon must be "
    "given by its number. `xpuctl quota` overrides it until the next start or reload.";

// Parses a size as written in `source`.
absl::Status ReadSize(const std::string& text, Source source, uint64_t& out);

}  // namespace xpud::config
