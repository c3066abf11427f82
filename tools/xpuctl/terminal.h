// Exclusive use of the terminal: single keys, and an alternate screen. The destructor restores the earlier
// state; signals that would end the program end waits instead (samples.h), so that the destructor runs. Not
// thread-safe.
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
  // Whether standard input and output are a terminal that can be drawn on.
  static bool IsThere();
  static absl::StatusOr<std::unique_ptr<Terminal>> Take();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Returns the next key, or nullopt if none is pressed within `seconds`.
  std::optional<Key> Read(double seconds);
  size_t rows() const;
  size_t columns() const;
  // Returns false if the terminal is gone.
  bool Show(const std::vector<std::string>& lines);

 private:
  explicit Terminal(const termios& before) : before_(before) {}
  std::optional<char> ReadByte(int milliseconds);

  const termios before_;
};

}  // namespace xpud::xpuctl
