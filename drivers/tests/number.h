// Tests only: the number that a parent gave its child, in an argument or in the environment.
#pragma once

#include <charconv>
#include <cstring>
#include <system_error>

namespace xpud::drivers {

// -1 where the text is no number.
inline int NumberIn(const char* text) {
  int number = -1;
  return std::from_chars(text, text + std::strlen(text), number).ec == std::errc() ? number : -1;
}

}  // namespace xpud::drivers
