// For tests: a number that a parent passes to its child, as an argument or in the environment.
#pragma once

#include <charconv>
#include <cstring>
#include <system_error>

namespace xpud::drivers {

// Returns -1 if the text is not a number.
inline int NumberIn(const char* text) {
  int number = -1;
  return std::from_chars(text, text + std::strlen(text), number).ec == std::errc() ? number : -1;
}

}  // namespace xpud::drivers
