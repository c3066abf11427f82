// Looks up accounts of this machine. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace xpud {

// Parses an account's name, or a uid.
std::optional<uint32_t> ParseUser(const std::string& text);
// Parses a group's name, or a gid.
std::optional<uint32_t> ParseGroup(const std::string& text);
std::string UserName(uint32_t uid);  // the account's name, or the uid if it has none

}  // namespace xpud
