// Keys of a terminal. Values.
#pragma once

namespace xpud::xpuctl {

struct Key {
  enum Kind { kCharacter, kUp, kDown, kEscape, kOther } kind = kOther;
  char character = 0;
};

inline constexpr char kControlC = 3;

}  // namespace xpud::xpuctl
