// What a queue was told and is not known to have finished: kept to be told again to another executor. Knows
// which memory each command uses, and from that, what a second run of a half-finished series would get wrong.
// The engine thread only.
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

  // A command: its messages are run all or not at all.
  struct Command {
    uint64_t position = kNotSent;  // in the ring, of its first message
    uint64_t mark = 0;             // kWriteValue: the value; all before it is done once it can be read
    uint32_t bytes = 0;            // of messages
    uint32_t uses = 0;
  };

  // A new command, last in the log; `messages` are whole, and `mark` is 0 or that of a kWriteValue.
  void Append(std::span<const std::byte> messages, std::span<const MemoryUse> uses, uint64_t mark);
  // Forgets the commands up to the last one with a mark of up to `value`, after showing each one's messages.
  void Complete(uint64_t value, absl::FunctionRef<void(std::span<const std::byte>)> visit);

  bool empty() const { return size() == 0; }
  size_t size() const { return commands_.size() - commands_begin_; }
  Command& operator[](size_t i) { return commands_[commands_begin_ + i]; }
  // Shows the messages of command `i` and later ones, until `visit` says no more.
  void ForEachFrom(size_t i, absl::FunctionRef<bool(Command&, std::span<const std::byte>)> visit);

  // Adds what memory its commands write.
  void AddWritten(std::vector<MemoryRange>& ranges) const;

  struct Damage {
    size_t started = 0;               // commands that may have begun
    std::vector<MemoryRange> spoilt;  // memory whose contents are lost
  };
  // The executor is dead; it had taken the ring's messages before `taken` and was at the one there, and
  // Complete was told the last value that was reached: so nothing behind the first mark has begun, whatever
  // was taken. Nothing counts as sent any more. Says what memory will not hold what it should once all is run
  // again: what is computed from memory that a command had overwritten, perhaps, before it is read again.
  Damage Rewind(uint64_t taken);

 private:
  struct Spoilt;

  // Each from its begin on; room is kept, so that a log that is in use allocates nothing.
  std::vector<Command> commands_;
  std::vector<std::byte> bytes_;  // messages
  std::vector<MemoryUse> uses_;
  size_t commands_begin_ = 0, bytes_begin_ = 0, uses_begin_ = 0;
};

}  // namespace xpud::executor::process
