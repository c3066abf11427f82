// The memory of one device: gives accounts blocks of their tenant's arena, as far as their credit and the
// device allow. A tenant's blocks lie in chunks of its own, so no memory changes its tenant but by way of the
// device, which gives out zeros. A tenant's chunks always cover the credit granted to it, but for what
// merged blocks save. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/memory/arena.h"
#include "daemon/memory/block.h"
#include "daemon/memory/ended_tenants.h"
#include "daemon/memory/ledger.h"
#include "daemon/memory/residency.h"
#include "daemon/memory/usage.h"
#include "daemon/tenant/tenant.h"

namespace xpud::memory {

class Pool {
 public:
  Pool(executor::Device& device, uint32_t index, Residency::Options moves = {});
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // As Ledger::Open. Accounts are opened and closed here.
  Ledger::Account& Open(const Tenant& tenant, std::atomic<uint64_t>* published,
                        const std::atomic<uint64_t>* claimed);
  // Returns completely free chunks to the device, too. REQUIRES: the account holds nothing.
  void Close(Ledger::Account& account);

  // Allocates a block for `account`. Returns OutOfMemory if the account's credit does not cover it and the
  // device has no more memory.
  absl::StatusOr<Block> Allocate(uint64_t bytes, Ledger::Account& account);
  void Free(const Block& block);

  // Blocks with equal contents become one, which all of them name from then on, and which nobody writes while
  // several do. Each is charged as before, and freed by itself; the memory is free when the last one is. What
  // that saves is not there for credit: an allocation within credit may fail on a full device.
  static constexpr uint64_t kMinMergedBytes = 1 << 20;
  // `other` gets the memory of `kept`. Returns its former block, which the caller frees. REQUIRES: the same
  // tenant and size, of at least kMinMergedBytes, and equal contents; `other` alone has its memory.
  Block Merge(const Block& kept, Block& other);
  // Whether nobody else has the memory of a block that was merged. Then it is an ordinary one again.
  bool EndMerge(const Block& block);
  // The memory of a block stays where it is until Unpin, even if the block is freed. REQUIRES: the tenant has
  // an account until then, and the block has kMinMergedBytes.
  void Pin(const Block& block);
  void Unpin(const Block& block);
  // Returns completely free chunks of a tenant to the device. REQUIRES: it has an account.
  void Trim(const Tenant& tenant);

  // Grants `more` bytes of credit to `account`, of which a block of `block` bytes will be allocated at once.
  // Returns OutOfMemory if the device lacks memory. The caller checks quotas.
  absl::Status GiveCredit(Ledger::Account& account, uint64_t more, uint64_t block);
  // Whether the device has `bytes` that are not reserved as credit, nor guaranteed to other tenants, without
  // anything that leaves it.
  bool HasSpare(uint64_t bytes, const Ledger::Account& account) const {
    return reserved_bytes() + ledger_.PromisedToOthers(account) + bytes <= ledger_.capacity();
  }

  Ledger& ledger() { return ledger_; }
  uint64_t used_bytes() const { return totals_.used_bytes; }
  // Of the device, for this account: what others are guaranteed is not there for it.
  MemoryShortage ShortageFor(const Ledger::Account& account) const {
    const uint64_t capacity = ledger_.capacity();
    return {MemoryShortage::Scope::kDevice, capacity - std::min(capacity, ledger_.PromisedToOthers(account)),
            reserved_bytes()};
  }
  uint64_t chunk_bytes() const { return totals_.chunk_bytes; }
  Residency& residency() { return residency_; }
  uint64_t peak_bytes() const { return peak_; }
  // For operators. Lacks what tenants share: see SharedMemory::AddTo.
  DeviceMemory Usage() const;
  // The same without `ended`, which may be of a thousand tenants.
  DeviceMemory CurrentUsage() const;

 private:
  // What the account's tenant has reserved.
  static uint64_t ReservedIn(const Arena& arena, const Ledger::Share& share) {
    return arena.used_bytes() + share.unused;
  }
  // Returns completely free chunks of all tenants to the device.
  void Trim();
  static void FreeRange(const Block& block) {
    block.account->arena->Free({reinterpret_cast<uint64_t>(block.address), block.bytes});
  }
  // One that names `block` is freed. Returns whether its memory is free then.
  bool DropMerged(const Block& block);
  // Adds a chunk with room for `bytes` to the account's arena, within the device's memory, or beyond it.
  enum class Limit { kDevice, kHost };
  absl::Status Grow(Ledger::Account& account, uint64_t bytes, Limit limit);
  // Ensures that `bytes` are free for the account: not reserved as credit, nor guaranteed to other tenants.
  absl::Status Secure(Ledger::Account& account, uint64_t bytes);
  // Ensures that there is a free range for a block of `bytes` in the account's arena.
  absl::Status MakeRoom(Ledger::Account& account, uint64_t bytes);
  uint64_t reserved_bytes() const { return used_bytes() + ledger_.unused(); }
  absl::Status Exhausted(const Ledger::Account& account, uint64_t asked, const std::string& cause = "") const;

  executor::Device& device_;
  const uint32_t index_;  // the device's index, for messages
  Ledger ledger_;
  Arena::Totals totals_;
  Residency residency_;
  std::map<Tenant, Arena> arenas_;  // of tenants with accounts
  EndedTenants ended_;              // of those without
  // Memory that several blocks have, or that is pinned: by address.
  struct Merged {
    uint64_t blocks = 1;
    uint64_t pins = 0;
  };
  absl::flat_hash_map<std::byte*, Merged> merged_;
  uint64_t peak_ = 0;
};

}  // namespace xpud::memory
