#include "daemon/memory/pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/strip.h"
#include "proto/base/check.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"

namespace xpud::memory {

Pool::Pool(executor::Device& device, uint32_t index, Residency::Options moves)
    : device_(device),
      index_(index),
      ledger_(device.properties().total_memory),
      residency_(device, ledger_, totals_, std::move(moves)) {}

Ledger::Account& Pool::Open(const Tenant& tenant, std::atomic<uint64_t>* published,
                            const std::atomic<uint64_t>* claimed) {
  Ledger::Account& account = ledger_.Open(tenant, published, claimed);
  const auto [found, is_new] = arenas_.try_emplace(tenant, device_, totals_, residency_, tenant);
  if (is_new) found->second.Count(ended_.Take(tenant));
  account.arena = &found->second;
  return account;
}

void Pool::Close(Ledger::Account& account) {
  const Tenant tenant = ledger_.TenantOf(account);
  const bool last = account.share().accounts == 1;
  Arena& arena = *account.arena;
  ledger_.Close(account);
  if (!last) return arena.Trim(ReservedIn(arena, ledger_.tenants().at(tenant)));
  ended_.Add(tenant, {arena.moved().in, arena.moved().out, arena.copied_at_write(), arena.stalls()});
  arenas_.erase(tenant);
}

absl::Status Pool::Exhausted(const Ledger::Account& account, uint64_t asked, const std::string& cause) const {
  return OutOfMemory(asked, index_, ledger_.capacity(), ShortageFor(account), cause);
}

void Pool::Trim() {
  for (auto& [tenant, arena] : arenas_) arena.Trim(ReservedIn(arena, ledger_.tenants().at(tenant)));
}

// What others are guaranteed must be there as chunks, whatever is free in those that there are.
absl::Status Pool::Grow(Ledger::Account& account, uint64_t bytes, Limit limit) {
  const uint64_t device_room = residency_.RoomNow();
  const auto room = [&] {
    const uint64_t taken = totals_.on_device + ledger_.PromisedToOthers(account);
    return device_room - std::min(taken, device_room);
  };
  const uint64_t least = Arena::ChunkSizeFor(bytes);
  if (least > room()) Trim();
  absl::Status grown = absl::ResourceExhaustedError("");
  if (least <= room() && residency_.MayGrow(*account.arena, least)) {
    grown = account.arena->Grow(bytes, room());
    if (absl::IsResourceExhausted(grown)) {
      Trim();
      grown = account.arena->Grow(bytes, least);
    }
    if (!absl::IsResourceExhausted(grown)) {
      // Clients are told only that there is no memory.
      if (!grown.ok() && !absl::IsUnavailable(grown)) residency_.Refused(grown);
      return grown;
    }
    if (residency_.AwaitsPeers()) return absl::UnavailableError("another device still maps memory");
    residency_.DeviceIsFull();
  }
  if (limit == Limit::kHost && residency_.MayGrowAway(*account.arena, account.share(), least))
    return account.arena->GrowAway(bytes, least);
  return Exhausted(account, bytes, std::string(absl::StripPrefix(grown.message(), kOutOfMemoryOpening)));
}

absl::Status Pool::Secure(Ledger::Account& account, uint64_t bytes) {
  if (bytes > ledger_.capacity()) return Exhausted(account, bytes);
  const auto missing = [&] {
    const uint64_t reserved = ReservedIn(*account.arena, account.share()) + bytes;
    return reserved - std::min(account.arena->chunk_bytes(), reserved);
  };
  if (HasSpare(bytes, account)) [[likely]] {
    if (missing() == 0) [[likely]]
      return absl::OkStatus();
    if (absl::Status grown = Grow(account, missing(), Limit::kDevice); grown.ok()) return grown;
  }
  ledger_.Reclaim();
  if (missing() == 0) return absl::OkStatus();
  return Grow(account, missing(), Limit::kHost);
}

absl::Status Pool::MakeRoom(Ledger::Account& account, uint64_t bytes) {
  Arena& arena = *account.arena;
  if (arena.Fits(bytes)) [[likely]]
    return absl::OkStatus();
  // A program whose sizes take turns would have slabs returned again and again. Then the arena grows instead.
  if (!arena.IsReturnPaid() && Grow(account, bytes, Limit::kDevice).ok()) return absl::OkStatus();
  arena.ReturnSlabs();
  if (arena.Fits(bytes)) return absl::OkStatus();
  arena.Trim(ReservedIn(arena, account.share()));
  return Grow(account, bytes, Limit::kHost);
}

absl::Status Pool::GiveCredit(Ledger::Account& account, uint64_t more, uint64_t block) {
  RETURN_IF_ERROR(Secure(account, more));
  RETURN_IF_ERROR(MakeRoom(account, block));
  ledger_.Give(account, more);
  return absl::OkStatus();
}

DeviceMemory Pool::Usage() const {
  DeviceMemory usage = CurrentUsage();
  usage.ended = ended_.Counters();
  return usage;
}

DeviceMemory Pool::CurrentUsage() const {
  DeviceMemory usage;
  usage.device_bytes = ledger_.capacity();
  usage.on_device = totals_.on_device;
  usage.host_bytes = residency_.store().used_bytes();
  usage.host_limit = residency_.store().limit();
  usage.file_bytes = residency_.store().files().used_bytes();
  usage.turns = residency_.turns();
  usage.turn_ns = residency_.turn_ns();
  for (const auto& [tenant, arena] : arenas_) {
    TenantMemory& memory = usage.tenants.try_emplace(usage.tenants.end(), tenant)->second;
    memory.holds = arena.used_bytes() + arena.saved();
    memory.saved = arena.saved();
    memory.copied_at_write = arena.copied_at_write();
    memory.on_device = arena.on_device();
    memory.moved_out = arena.chunk_bytes() - arena.on_device();
    memory.cached = arena.on_device() - std::min(arena.on_device(), arena.used_bytes());
    memory.moved = arena.moved();
    memory.stalls = arena.stalls();
  }
  return usage;
}

absl::StatusOr<Block> Pool::Allocate(uint64_t bytes, Ledger::Account& account) {
  if (bytes > ledger_.capacity()) return Exhausted(account, bytes);
  const uint64_t rounded = RoundSize(bytes),
                 credit = account.credit() - std::min(account.credit(), account.held());
  if (rounded > credit) RETURN_IF_ERROR(Secure(account, rounded - credit));
  RETURN_IF_ERROR(MakeRoom(account, bytes));
  const auto range = account.arena->Allocate(bytes);
  XPUD_CHECK(range.has_value());
  peak_ = std::max(peak_, used_bytes());
  ledger_.Hold(account, range->bytes);
  return Block{reinterpret_cast<std::byte*>(range->address), range->bytes, &account, {}};
}

void Pool::Free(const Block& block) {
  ledger_.Release(*block.account, block.bytes);
  if (block.bytes >= kMinMergedBytes && !merged_.empty() && !DropMerged(block)) [[unlikely]]
    return;
  FreeRange(block);
}

bool Pool::DropMerged(const Block& block) {
  const auto found = merged_.find(block.address);
  if (found == merged_.end()) return true;
  Merged& merged = found->second;
  if (merged.blocks-- > 1) block.account->arena->Saves(-static_cast<int64_t>(block.bytes));
  if (merged.blocks != 0 || merged.pins != 0) return false;
  merged_.erase(found);
  return true;
}

// Until its former block is freed, the account of `other` holds both.
Block Pool::Merge(const Block& kept, Block& other) {
  XPUD_CHECK(kept.account->arena == other.account->arena && kept.bytes == other.bytes);
  XPUD_CHECK(kept.address != other.address && kept.bytes >= kMinMergedBytes);
  if (const auto found = merged_.find(other.address); found != merged_.end())
    XPUD_CHECK(found->second.blocks == 1);
  ++merged_.try_emplace(kept.address).first->second.blocks;
  kept.account->arena->Saves(static_cast<int64_t>(kept.bytes));
  ledger_.Hold(*other.account, other.bytes);
  // Born before everything else: no queue reuses it.
  return std::exchange(other, Block{kept.address, other.bytes, other.account, {}});
}

bool Pool::EndMerge(const Block& block) {
  const auto found = merged_.find(block.address);
  if (found == merged_.end()) return true;
  if (found->second.blocks != 1) return false;
  if (found->second.pins == 0) merged_.erase(found);
  return true;
}

void Pool::Pin(const Block& block) { ++merged_.try_emplace(block.address).first->second.pins; }

void Pool::Unpin(const Block& block) {
  const auto found = merged_.find(block.address);
  XPUD_CHECK(found != merged_.end() && found->second.pins != 0);
  if (--found->second.pins != 0 || found->second.blocks > 1) return;
  const bool is_free = found->second.blocks == 0;
  merged_.erase(found);
  if (is_free) FreeRange(block);
}

void Pool::Trim(const Tenant& tenant) {
  Arena& arena = arenas_.at(tenant);
  arena.Trim(ReservedIn(arena, ledger_.tenants().at(tenant)));
}

}  // namespace xpud::memory
