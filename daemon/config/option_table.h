// The one table of what a daemon can be told: from it come the command line's parser and usage text, the
// configuration file's validation and its documented example. Any thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "daemon/config/options.h"

namespace xpud::config {

enum class Place { kCommandLine, kFile };

// How values are read and shown.
struct ValueType {
  std::string allowed;  // as messages say it; empty: a switch, which takes no value on the command line
  std::function<absl::Status(Options& options, const std::string& text, Place place)> read;
  std::function<std::string(const Options& options)> show;  // as `read` takes it; empty: not set
  std::function<void(const Options& from, Options& to)> copy;
};

struct OptionRow {
  std::string_view name;   // "socket-mode": --socket-mode on the command line, the key in the file
  std::string_view value;  // what its value is called; empty: a switch
  std::string_view help;
  // What it is where it is not set, in words; empty: as Options{} shows it.
  std::string_view fallback;
  std::string_view example;  // for the file, where Options{} shows none
  enum Where { kBoth, kCommandLineOnly } where = kBoth;
  bool live = false;  // SIGHUP changes it in a running daemon
  ValueType type;

  std::string Default() const;
};

// In the order in which people read them.
std::span<const OptionRow> OptionRows();
// Null where there is none.
const OptionRow* FindRow(std::string_view name);
// The row of the command line, or where `place` is the file, of what that may say, that is spelled most like
// `name`; empty where none is close.
std::string_view NearestName(std::string_view name, Place place);

// `name`'s key in the file that is no option: a map from tenants to sizes.
inline constexpr std::string_view kQuotasKey = "quotas";
inline constexpr std::string_view kQuotasHelp =
    "What the processes of single users may hold of each device together, by the user's name or number, or "
    "USER/TENANT for one that a gateway of that user's speaks for. An account made since the daemon's start "
    "is "
    "named by its number. `xpuctl quota` changes it until the next start or reload.";

// How a size is written in the file.
absl::Status ReadSize(const std::string& text, Place place, uint64_t& out);

}  // namespace xpud::config
