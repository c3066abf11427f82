// Makes text of a peer safe for terminals, logs and protobuf strings. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace xpud {

// Returns valid UTF-8 of at most `most` bytes, cut between characters. Invalid bytes, control characters (C0,
// DEL, C1), line separators and characters that change the text's direction each become '?'.
std::string PrintableText(std::string_view text, size_t most = std::string_view::npos);

// The first character of `text`, which must not be empty.
struct Character {
  std::string_view bytes;  // one byte if it is not UTF-8
  bool valid;              // whether it is UTF-8
  uint32_t code;           // 0 if it is not valid
  bool printable;          // whether PrintableText keeps it
};
Character FirstCharacter(std::string_view text);

}  // namespace xpud
