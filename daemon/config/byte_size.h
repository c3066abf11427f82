// Parses sizes with units. Pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace xpud {

// Parses "1.5GiB", "64M" or "1000000" (bytes). Returns nullopt if it is not a size, or exceeds 2^63.
std::optional<uint64_t> ParseBytes(std::string_view text);

}  // namespace xpud
