// Sizes as people write them. Pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace xpud {

// "1.5GiB", "64M", "1000000" (bytes). Nothing where it is none, or beyond 2^63.
std::optional<uint64_t> ParseBytes(std::string_view text);

}  // namespace xpud
