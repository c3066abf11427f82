#include "proto/base/text.h"

namespace xpud {
namespace {

struct Decoded {
  uint32_t code;
  size_t bytes;  // 0: not UTF-8
};

// Decodes the first character of `text` (not empty), well-formed as in table 3-7 of the Unicode standard.
Decoded First(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {0, 0};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool too_long = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return too_long || surrogate || code > 0x10ffff ? Decoded{0, 0} : Decoded{code, bytes};
}

bool IsPrintable(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) return false;
  if (code == 0x200e || code == 0x200f || code == 0x61c) return false;  // direction marks
  return !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069);
}

}  // namespace

Character FirstCharacter(std::string_view text) {
  const Decoded first = First(text);
  if (first.bytes == 0) return {text.substr(0, 1), false, 0, false};
  return {text.substr(0, first.bytes), true, first.code, IsPrintable(first.code)};
}

std::string PrintableText(std::string_view text, size_t most) {
  std::string out;
  while (!text.empty()) {
    const Character first = FirstCharacter(text);
    const std::string_view shown = first.printable ? first.bytes : "?";
    if (out.size() + shown.size() > most) break;
    out += shown;
    text.remove_prefix(first.bytes.size());
  }
  return out;
}

}  // namespace xpud
