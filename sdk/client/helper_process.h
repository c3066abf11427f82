// The programs of xpud that this library starts: the daemon, and xpud-connect. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::client {

// Where the program `name` is: what the environment's `variable` names, beside this library (or in
// ../bin, ../../bin of it), or on PATH. NotFound says what to do.
absl::StatusOr<std::string> FindBinary(const std::string& name, const char* variable);

// Runs `binary`, which puts itself in the background, with its output in the file `output`, no input, `third`
// as its descriptor 3, and nothing else of this process's: who reads our output to the end must not wait for
// it.
absl::Status RunInBackground(const std::string& binary, std::vector<std::string> arguments,
                             const std::string& output, int third);

}  // namespace xpud::client
