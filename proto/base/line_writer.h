// Writes lines to a descriptor whose reader may have stopped reading, such as standard error: never blocks.
// Not thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "proto/base/unique_fd.h"

namespace xpud {

class LineWriter {
 public:
  // `fd`: a pipe, terminal, socket or file, which stays open. Other processes may share it, so its own flags
  // are not changed.
  explicit LineWriter(int fd);

  // Returns false if there is no room: then nothing of the line is written. A line of which a part was
  // written is completed before the next one.
  bool Write(std::string_view line);

 private:
  // Writes as much as there is room for. Returns how much, also if the reader is gone: then all.
  size_t WriteSome(std::string_view text) const;

  enum class Kind { kBlocking, kNonBlocking, kSocket };  // kBlocking: asked for room before each write
  const int fd_;
  Kind kind_ = Kind::kBlocking;
  UniqueFd own_;      // the same pipe or terminal, opened without blocking
  std::string rest_;  // of a line that was begun
};

}  // namespace xpud
