// What one queue of an asynchronous device (a GPU) has under way. The device reports in words of host memory
// that it writes and we read: how far it has come, and bad indices that kernels met. Memory that the queue
// freed is kept until the device has come past its last use, and serves the queue's own next allocations
// before that, since those run later anyway. The engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "daemon/memory/pool.h"

namespace xpud::session {

class InFlight {
 public:
  static constexpr size_t kErrorSlots = 15;  // kinds of commands under way that may report an index
  struct Words {
    alignas(64) uint64_t done;  // sequence of the last finished command that was announced
    uint64_t errors[kErrorSlots];
  };
  static_assert(sizeof(Words) == 128);

  // `words`: zero, visible to the device, which finds them at `on_device`; they outlive the queue's work.
  InFlight(Words& words, Words* on_device) : words_(words), on_device_(on_device) {}

  uint64_t* done_word() { return &on_device_->done; }  // the device's address
  uint64_t Done() const;                               // as the device says now

  // Where (the device's address) command `sequence` reports an index; null while all slots are in use.
  // Commands of the same `wording` are worded by `describe` alike, and share a slot: so a program that does
  // the same again gives its kernels the same addresses again, and they can be replayed.
  uint64_t* TakeErrorSlot(uint64_t sequence, uint64_t wording, absl::FunctionRef<std::string()> describe);
  // The command of the slot taken last was not sent after all.
  void ReturnErrorSlot() {
    --slots_[reporters_.back().slot].users;
    reporters_.pop_back();
  }

  // Memory whose last use is command `sequence` of this queue.
  void Retire(const memory::Block& block, uint64_t sequence) { retired_.push_back({block, sequence}); }
  // A retired block of exactly this size. So that the commands after the last announced one, `announced`, can
  // be run again from there, it is none that held something before that and was used after it.
  std::optional<memory::Block> Reuse(uint64_t bytes, uint64_t announced);

  // The device has come to `done`: reports the errors and frees the memory of commands up to there.
  using OnError = absl::FunctionRef<void(uint64_t sequence, uint64_t word, const std::string& command)>;
  void Advance(uint64_t done, OnError on_error, absl::FunctionRef<void(const memory::Block&)> free);
  // The device will do nothing more: frees everything.
  void Drain(absl::FunctionRef<void(const memory::Block&)> free) {
    Advance(UINT64_MAX, [](uint64_t, uint64_t, const std::string&) {}, free);
  }

 private:
  struct Retired {
    memory::Block block;
    uint64_t sequence;
  };
  struct Slot {
    uint64_t wording = 0;
    size_t users = 0;  // commands under way
    std::string command;
  };
  struct Reporter {
    uint64_t sequence;
    size_t slot;
  };

  // The slot of that wording, or one that is not in use, or kErrorSlots.
  size_t SlotFor(uint64_t wording) const;

  Words& words_;
  Words* const on_device_;
  std::deque<Retired> retired_;     // by sequence
  std::deque<Reporter> reporters_;  // by sequence
  std::array<Slot, kErrorSlots> slots_;
};

}  // namespace xpud::session
