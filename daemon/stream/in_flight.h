// What one queue of an asynchronous device (a GPU) has in flight. The device reports in words of host memory
// that it writes and the daemon reads: its progress, and bad indices that kernels met. Memory that the queue
// freed is kept until the device has passed its last use. Before that it can serve the queue's own next
// allocations, since those run later. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "daemon/memory/pool.h"
#include "daemon/stream/device_error.h"

namespace xpud::stream {

class InFlight {
 public:
  static constexpr size_t kErrorSlots = 63;  // keys of commands in flight that may report an index
  struct Words {
    alignas(64) uint64_t done;  // sequence of the last finished command that was announced
    uint64_t errors[kErrorSlots];
  };
  static_assert(sizeof(Words) == 512);

  // `words`: zero. `on_device`: their address for the device. They outlive the queue's work.
  InFlight(Words& words, Words* on_device) : words_(words), on_device_(on_device) {}

  uint64_t* done_word() { return &on_device_->done; }  // the device's address
  uint64_t Done() const;                               // sequence that the device has reported

  // Returns where (the device's address) command `sequence` reports an index, or nullptr while all slots are
  // in use. Commands with the same `key`, which `describe` describes alike, share a slot. So a program that
  // repeats its commands gives its kernels the same addresses, and they can be replayed.
  uint64_t* TakeErrorSlot(uint64_t sequence, uint64_t key, absl::FunctionRef<Reporter()> describe);
  // Whether a command in flight may report an index.
  bool has_reporters() const { return !reporters_.empty(); }
  // The command that took the last slot was not sent.
  void ReturnErrorSlot() {
    --slots_[reporters_.back().slot].users;
    reporters_.pop_back();
  }

  // Memory whose last use is command `sequence` of this queue.
  void Retire(const memory::Block& block, uint64_t sequence) { retired_.push_back({block, sequence}); }
  // Returns a retired block of `bytes`, unless running the commands after `announced` again needs its old
  // contents: it was allocated before that command and used after it.
  std::optional<memory::Block> Reuse(uint64_t bytes, uint64_t announced);

  // The device has completed `done`: reports the errors and frees the memory of commands up to there.
  // `suspects`: the commands in flight that share the slot, by sequence. At least one of them has reported.
  using OnError =
      absl::FunctionRef<void(std::span<const uint64_t> suspects, uint64_t word, const Reporter& reporter)>;
  void Advance(uint64_t done, OnError on_error, absl::FunctionRef<void(const memory::Block&)> free);
  // The device does nothing more: frees everything.
  void Drain(absl::FunctionRef<void(const memory::Block&)> free) {
    Advance(UINT64_MAX, [](std::span<const uint64_t>, uint64_t, const Reporter&) {}, free);
  }

 private:
  struct Retired {
    memory::Block block;
    uint64_t sequence;
  };
  struct Slot {
    uint64_t key = 0;
    size_t users = 0;  // commands in flight
    Reporter reporter;
  };
  // A command in flight that may report.
  struct Command {
    uint64_t sequence;
    size_t slot;
  };

  // Returns the slot of that key, else one that is not in use, else kErrorSlots.
  size_t SlotFor(uint64_t key) const;

  Words& words_;
  Words* const on_device_;
  std::deque<Retired> retired_;    // by sequence
  std::deque<Command> reporters_;  // by sequence
  std::array<Slot, kErrorSlots> slots_;
};

}  // namespace xpud::stream
