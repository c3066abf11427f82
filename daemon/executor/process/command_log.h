// The commands of a queue that may be unfinished, kept so that another executor can run them again. The log
// knows which memory each command uses, and so which results a second run of a half-finished series would get
// wrong. REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/process/messages.h"

namespace xpud::executor::process {

class CommandLog {
 public:
  static constexpr uint64_t kNotSent = UINT64_MAX;

  // A command. All of its messages run, or none.
  struct Command {
    uint64_t position = kNotSent;  // ring position of its first message
    uint64_t mark = 0;   // value of its kWriteValue, or 0; when it can be read, all earlier commands are done
    uint32_t bytes = 0;  // size of its messages
    uint32_t uses = 0;
  };

  // Appends a command. `messages` are complete; `mark` is 0 or the value of a kWriteValue.
  void Append(std::span<const std::byte> messages, std::span<const MemoryUse> uses, uint64_t mark);
  // Removes the commands up to the last one with a mark of at most `value`, and calls `visit` with the
  // messages of each.
  void Complete(uint64_t value, absl::FunctionRef<void(std::span<const std::byte>)> visit);

  bool empty() const { return size() == 0; }
  size_t size() const { return commands_.size() - commands_begin_; }
  Command& operator[](size_t i) { return commands_[commands_begin_ + i]; }
  // Calls `visit` with the messages of command `i` and later ones, until it returns false.
  void ForEachFrom(size_t i, absl::FunctionRef<bool(Command&, std::span<const std::byte>)> visit);

  // Adds the memory that the commands write.
  void AddWritten(std::vector<MemoryRange>& ranges) const;

  struct Damage {
    size_t started = 0;               // commands that may have started
    std::vector<MemoryRange> spoilt;  // memory whose contents are lost
  };
  // Called after the executor died. It had taken the ring's messages before `taken` and was at the message
  // there. REQUIRES: Complete was called with the last value that was reached; commands after the first
  // remaining mark have not started, even if they were taken. Marks all commands as not sent. Returns the
  // memory that will be wrong after all commands ran again, because a command may have overwritten what an
  // earlier command read.
  Damage Rewind(uint64_t taken);

 private:
  struct Spoilt;

  // From index begin_ on. Erased space is kept, so that a log in steady use allocates nothing.
  std::vector<Command> commands_;
  std::vector<std::byte> bytes_;  // messages
  std::vector<MemoryUse> uses_;
  size_t commands_begin_ = 0, bytes_begin_ = 0, uses_begin_ = 0;
};

}  // namespace xpud::executor::process
