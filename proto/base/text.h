// Text that a peer wrote, made safe for people's terminals, logs and protobuf strings. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace xpud {

// Valid UTF-8 of at most `most` bytes, cut between characters. What is not UTF-8, control characters (C0,
// DEL, C1), line separators and those that turn the direction of text are each shown as '?'.
std::string PrintableText(std::string_view text, size_t most = std::string_view::npos);

}  // namespace xpud
