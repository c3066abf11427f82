// JSON that others wrote: parsed within bounds, and read without exceptions. Thread-safe.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace xpud::agent::kubernetes {

using Json = nlohmann::json;

inline constexpr size_t kMaxJsonBytes = size_t{4} << 20;
// Comparing and printing recurse.
inline constexpr size_t kMaxJsonDepth = 64;

// Returns InvalidArgument if the text is longer or deeper than allowed, or is not JSON.
absl::StatusOr<Json> ParseJson(std::string_view text, size_t max_bytes = kMaxJsonBytes);

// The member of an object. Null if `value` is no object or has no such member.
const Json& Member(const Json& value, std::string_view name);
// The member's text. Empty if it is missing or no text.
std::string_view TextMember(const Json& value, std::string_view name);

// On one line. Bytes that are not UTF-8 are replaced.
std::string JsonText(const Json& value);

}  // namespace xpud::agent::kubernetes
