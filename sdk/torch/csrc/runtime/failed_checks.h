// The messages of checks that a device makes (engines/device_check.h). The device knows a check by its number
// only, and a session's error reports that number. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xpud::shim {

// Returns the number of a check with this message: the same for the same message.
int64_t NumberOfCheck(std::string_view message);

// Returns the message of the check whose failure a session's error reports, if it does.
std::optional<std::string> MessageOfFailedCheck(std::string_view error);

}  // namespace xpud::shim
