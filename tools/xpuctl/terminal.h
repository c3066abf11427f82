// The terminal while a program has it to itself: single keys, and a screen of its own. What it was before is
// restored with the object's end; signals that end programs end waiting instead (samples.h), so that this is
// reached. One thread.
#pragma once

#include <termios.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/xpuctl/keys.h"

namespace xpud::xpuctl {

class Terminal {
 public:
  // Whether standard input and output are one that can be drawn on.
  static bool IsThere();
  static absl::StatusOr<std::unique_ptr<Terminal>> Take();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // The next key, if one is pressed within so many seconds.
  std::optional<Key> Read(double seconds);
  size_t rows() const;
  size_t columns() const;
  // False: nobody reads it any more.
  bool Show(const std::vector<std::string>& lines);

 private:
  explicit Terminal(const termios& before) : before_(before) {}
  std::optional<char> ReadByte(int milliseconds);

  const termios before_;
};

}  // namespace xpud::xpuctl
