// A session's part on a device, as its memory sees it. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <vector>

namespace xpud::memory {

// A command of a session: the last one of those that matter, in its queue.
struct Mark {
  uint32_t queue;
  uint64_t sequence;
};

class User {
 public:
  // Whether the device has done the command, and what came before it in the queue.
  virtual bool HasCompleted(const Mark& mark) const = 0;
  // The last commands that were submitted and may not have ended.
  virtual std::vector<Mark> Unfinished() = 0;
  // Whether it has commands to run, or the device works for it.
  virtual bool IsAtWork() const = 0;

 protected:
  ~User() = default;
};

}  // namespace xpud::memory
