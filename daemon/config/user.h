// The machine's accounts. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace xpud {

// Of an account's name, or the number itself.
std::optional<uint32_t> ParseUser(const std::string& text);
std::string UserName(uint32_t uid);  // the account's name, or the number

}  // namespace xpud
