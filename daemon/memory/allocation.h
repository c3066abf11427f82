// Memory that a buffer names: a block, and what is known of its contents. A buffer is a handle of a session;
// contents belong to the memory, whoever names it. Each allocation has one buffer, unless it is shared
// (shared_memory.h). The block of an allocation may be that of others, too, which have equal contents
// (Pool::Merge). A value.
#pragma once

#include <cstdint>

#include "daemon/memory/block.h"

namespace xpud::memory {

// Why contents must not be used.
enum class Poison : uint8_t {
  kNone,
  kInPlace,   // a command that would have changed them was skipped, or had a bad index; they are valid again
              // once the error is reported
  kFresh,     // never written, because what should have written them failed; until overwritten
  kNoStorage  // the allocation failed
};

// What poisons contents.
struct Fault {
  uint32_t cause = 0;  // the error that a reader gets: see stream::QueueErrors
  uint8_t queue = 0;   // of the command that was skipped or failed
};

struct Allocation {
  Block block;
  uint64_t content = 0;  // changes with every write; never reused on this device
  uint32_t cause = 0;    // as in Fault, while there is poison
  Poison poison = Poison::kNone;
  uint8_t fault_queue : 7 = 0;
  bool listed : 1 = false;  // among those whose poison ends with the report of the error
  bool written = false;
  bool is_shared : 1 = false;
  bool is_merged : 1 = false;  // others may have the block: get one of its own before it is written

  Fault fault() const { return {cause, fault_queue}; }
  // Keeps earlier poison.
  void SetPoison(Poison kind, Fault fault) {
    if (poison != Poison::kNone) return;
    poison = kind;
    cause = fault.cause;
    fault_queue = fault.queue & 0x7f;
  }
};

}  // namespace xpud::memory
