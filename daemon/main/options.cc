#include "daemon/main/options.h"

#include <array>
#include <functional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace xpud {
namespace {

absl::Status ParseInt(const std::string& value, int lowest, int& out) {
  if (absl::SimpleAtoi(value, &out) && out >= lowest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", value, "' is no integer of at least ", lowest));
}

absl::Status ParseMode(const std::string& value, unsigned& out) {
  out = 0;
  for (const char c : value) {
    if (c < '0' || c > '7')
      return absl::InvalidArgumentError(absl::StrCat("'", value, "' is no octal mode such as 0660"));
    out = out * 8 + static_cast<unsigned>(c - '0');
  }
  return out != 0 && out <= 0777
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("mode ", value, " is outside 0001 to 0777"));
}

struct Argument {
  std::string_view name;
  std::function<absl::Status(Options&, const std::string&)> set;
};

const std::array<Argument, 8>& Arguments() {
  static const auto* const arguments = new std::array<Argument, 8>{{
      {"--socket",
       [](Options& o, const std::string& v) {
         o.socket = v;
         return absl::OkStatus();
       }},
      {"--socket-mode", [](Options& o, const std::string& v) { return ParseMode(v, o.socket_mode); }},
      {"--device",
       [](Options& o, const std::string& v) {
         o.device = v;
         return absl::OkStatus();
       }},
      {"--driver",
       [](Options& o, const std::string& v) {
         o.driver = v;
         return absl::OkStatus();
       }},
      {"--cache-dir",
       [](Options& o, const std::string& v) {
         o.cache_directory = v;
         return absl::OkStatus();
       }},
      {"--log-level",
       [](Options& o, const std::string& v) {
         o.log_level = v;
         return absl::OkStatus();
       }},
      {"--exit-when-idle",
       [](Options& o, const std::string& v) {
         int seconds = 0;
         absl::Status status = ParseInt(v, 0, seconds);
         o.exit_when_idle_seconds = seconds;
         return status;
       }},
      {"--ready-fd", [](Options& o, const std::string& v) { return ParseInt(v, 0, o.ready_fd); }},
  }};
  return *arguments;
}

bool SetFlag(std::string_view name, Options& options) {
  if (name == "--background") return options.background = true;
  if (name == "--asynchronous") return options.asynchronous = true;
  if (name == "--help") return options.help = true;
  if (name == "--version") return options.version = true;
  return false;
}

}  // namespace

const char kUsage[] = R"(xpud: owns this machine's accelerators and serves them to clients.

  --socket PATH          where clients connect (default /run/xpud/xpud.sock); control.sock lies beside it
  --socket-mode MODE     octal mode of the socket (default 0600)
  --device WHICH         auto (every device), cpu, gpu, or a vendor: cpu, cuda, intel
  --driver PATH          libze_xpud.so (default: beside this binary)
  --cache-dir PATH       compiled kernels (default $XDG_CACHE_HOME/xpud or ~/.cache/xpud)
  --exit-when-idle SEC   end this long after the last client
  --log-level LEVEL      trace, debug, info, warn, error
  --asynchronous         treat the CPU device like a GPU, which works on its own (for tests)
  --background           detach from the caller
  --ready-fd FD          write one byte there when clients can connect
  --help, --version
)";

absl::StatusOr<Options> ParseOptions(std::span<char* const> arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (SetFlag(name, options)) continue;
    const Argument* known = nullptr;
    for (const Argument& argument : Arguments()) {
      if (argument.name == name) known = &argument;
    }
    if (known == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", std::string(name), "; see --help"));
    if (i + 1 == arguments.size())
      return absl::InvalidArgumentError(absl::StrCat(std::string(name), " needs a value; see --help"));
    if (absl::Status status = known->set(options, arguments[++i]); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(name), ": ", status.message()));
    }
  }
  return options;
}

}  // namespace xpud
