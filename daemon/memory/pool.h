// The memory of one device: gives accounts blocks of an arena, as far as their credit and the device allow.
// Memory that changes its tenant is zeroed first. The chunks always cover all granted credit. REQUIRES: the
// lane's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/memory/arena.h"
#include "daemon/memory/block.h"
#include "daemon/memory/ledger.h"

namespace xpud::memory {

class Pool {
 public:
  Pool(executor::Device& device, uint32_t index);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Fills memory with zeros, ordered before the work that will use it.
  using Zero = absl::FunctionRef<absl::Status(std::byte* address, uint64_t bytes)>;
  // Allocates a block for `account`. Returns OutOfMemory if the account's credit does not cover it and the
  // device has no more memory.
  absl::StatusOr<Block> Allocate(uint64_t bytes, Ledger::Account& account, Zero zero);
  void Free(const Block& block);
  // Grants `more` bytes of credit to `account`, of which a block of `block` bytes will be allocated at once.
  // Returns OutOfMemory if the device lacks memory. The caller checks quotas.
  absl::Status GiveCredit(Ledger::Account& account, uint64_t more, uint64_t block);
  // Whether the device has `bytes` that are not reserved as credit, nor guaranteed to other tenants.
  bool HasSpare(uint64_t bytes, const Ledger::Account& account) const {
    return reserved_bytes() + ledger_.PromisedToOthers(account) + bytes <= ledger_.capacity();
  }
  // Returns completely free chunks to the device.
  void Trim() { arena_.Trim(reserved_bytes()); }

  Ledger& ledger() { return ledger_; }
  uint64_t used_bytes() const { return arena_.used_bytes(); }
  // Of the device, for this account: what others are guaranteed is not there for it.
  MemoryShortage ShortageFor(const Ledger::Account& account) const {
    const uint64_t capacity = ledger_.capacity();
    return {MemoryShortage::Scope::kDevice, capacity - std::min(capacity, ledger_.PromisedToOthers(account)),
            reserved_bytes()};
  }
  uint64_t chunk_bytes() const { return arena_.chunk_bytes(); }
  uint64_t peak_bytes() const { return peak_; }

 private:
  // Where the account's blocks lie: one arena serves all accounts.
  Arena& ArenaOf(const Ledger::Account&) { return arena_; }
  // What follows is about the account's arena. Adds a chunk with room for `bytes`, within the device's
  // memory.
  absl::Status Grow(Ledger::Account& account, uint64_t bytes);
  // Ensures that `bytes` are free for the account: not reserved as credit, nor guaranteed to other tenants.
  absl::Status Secure(Ledger::Account& account, uint64_t bytes);
  // Ensures that there is a free range for a block of `bytes`.
  absl::Status MakeRoom(Ledger::Account& account, uint64_t bytes);
  uint64_t reserved_bytes() const { return used_bytes() + ledger_.unused(); }
  absl::Status Exhausted(const Ledger::Account& account, uint64_t asked, const std::string& cause = "") const;

  const uint32_t index_;  // the device's index, for messages
  Ledger ledger_;
  Arena arena_;
  uint64_t peak_ = 0;
};

}  // namespace xpud::memory
