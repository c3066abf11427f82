// Text that a peer wrote, made safe for people's terminals, logs and protobuf strings. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace xpud {

// Valid UTF-8 of at most `most` bytes, cut between characters. What is not UTF-8, control characters (C0,
// DEL, C1), line separators and those that turn the direction of text are each shown as '?'.
std::string PrintableText(std::string_view text, size_t most = std::string_view::npos);

// The character that `text` (not empty) begins with.
struct Character {
  std::string_view bytes;  // one byte where that is not UTF-8
  bool valid;              // UTF-8
  uint32_t code;           // 0 where it is not valid
  bool printable;          // PrintableText keeps it
};
Character FirstCharacter(std::string_view text);

}  // namespace xpud
