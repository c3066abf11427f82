#include "daemon/executor/process/serve_arguments.h"

#include <array>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace xpud::executor::process {
namespace {

constexpr std::string_view kServe = "--serve-device";

// Each argument is NAME=VALUE.
template <typename Arguments, typename Visit>
void VisitEach(Arguments& arguments, Visit visit) {
  visit("back-end=", arguments.back_end);
  visit("device=", arguments.device);
  visit("driver-library=", arguments.driver_library);
  visit("rings=", arguments.rings);
  visit("confine=", arguments.confine);
}

bool Parse(std::string_view text, std::string& value) {
  value = text;
  return true;
}
bool Parse(std::string_view text, int& value) {
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &value);
}

}  // namespace

std::vector<std::string> ServeArguments::ToArgv() const {
  std::vector<std::string> argv = {"xpud", std::string(kServe)};
  VisitEach(*this, [&](const char* name, const auto& value) { argv.push_back(absl::StrCat(name, value)); });
  return argv;
}

std::optional<ServeArguments> ServeArguments::FromArgv(std::span<char* const> argv) {
  if (argv.size() < 2 || argv[1] != kServe) return std::nullopt;
  ServeArguments arguments;
  bool complete = true;
  VisitEach(arguments, [&](std::string_view name, auto& value) {
    bool found = false;
    for (const std::string_view argument : argv.subspan(2))
      if (argument.starts_with(name)) found = Parse(argument.substr(name.size()), value);
    complete &= found;
  });
  return complete ? std::optional(arguments) : std::nullopt;
}

}  // namespace xpud::executor::process
