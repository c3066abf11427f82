#include "daemon/memory/pool.h"

#include <algorithm>

#include "absl/strings/strip.h"
#include "proto/base/check.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"

namespace xpud::memory {

Pool::Pool(executor::Device& device, uint32_t index)
    : index_(index), ledger_(device.properties().total_memory), arena_(device) {}

absl::Status Pool::Exhausted(uint64_t asked, const std::string& cause) const {
  return OutOfMemory(asked, index_, ledger_.capacity(), shortage(), cause);
}

absl::Status Pool::Grow(Arena& arena, uint64_t bytes) {
  if (chunk_bytes() + Arena::ChunkSizeFor(bytes) > ledger_.capacity()) return Exhausted(bytes);
  absl::Status grown = arena.Grow(bytes);
  if (absl::IsResourceExhausted(grown))
    return Exhausted(bytes, std::string(absl::StripPrefix(grown.message(), kOutOfMemoryOpening)));
  return grown;
}

absl::Status Pool::Secure(Arena& arena, uint64_t bytes) {
  if (bytes > ledger_.capacity()) return Exhausted(bytes);
  const auto missing = [&] {
    return reserved_bytes() + bytes - std::min(chunk_bytes(), reserved_bytes() + bytes);
  };
  if (missing() == 0) [[likely]]
    return absl::OkStatus();
  if (absl::Status grown = Grow(arena, missing()); grown.ok()) return grown;
  ledger_.Reclaim();
  return missing() == 0 ? absl::OkStatus() : Grow(arena, missing());
}

absl::Status Pool::MakeRoom(Arena& arena, uint64_t bytes) {
  if (arena.Fits(bytes)) [[likely]]
    return absl::OkStatus();
  // A program whose sizes take turns would have slabs returned again and again. Then the arena grows instead.
  if (!arena.IsReturnPaid() && Grow(arena, bytes).ok()) return absl::OkStatus();
  arena.ReturnSlabs();
  if (arena.Fits(bytes)) return absl::OkStatus();
  Trim();
  return Grow(arena, bytes);
}

absl::Status Pool::GiveCredit(Ledger::Account& account, uint64_t more, uint64_t block) {
  RETURN_IF_ERROR(Secure(ArenaOf(account), more));
  RETURN_IF_ERROR(MakeRoom(ArenaOf(account), block));
  ledger_.Give(account, more);
  return absl::OkStatus();
}

absl::StatusOr<Block> Pool::Allocate(uint64_t bytes, Ledger::Account& account, Zero zero) {
  if (bytes > ledger_.capacity()) return Exhausted(bytes);
  const uint64_t rounded = RoundSize(bytes),
                 credit = account.credit() - std::min(account.credit(), account.held());
  Arena& arena = ArenaOf(account);
  if (rounded > credit) RETURN_IF_ERROR(Secure(arena, rounded - credit));
  RETURN_IF_ERROR(MakeRoom(arena, bytes));
  const uint32_t tenant = account.label();
  const auto range = arena.Allocate(bytes, tenant);
  XPUD_CHECK(range.has_value());
  peak_ = std::max(peak_, used_bytes());
  const Block block = {reinterpret_cast<std::byte*>(range->address), range->bytes, &account};
  ledger_.Hold(account, block.bytes);
  if (range->tenant != 0 && range->tenant != tenant) {
    if (absl::Status status = zero(block.address, block.bytes); !status.ok()) {
      ledger_.Release(account, block.bytes);
      arena.Free(*range, range->tenant);
      return status;
    }
  }
  return block;
}

void Pool::Free(const Block& block) {
  ledger_.Release(*block.account, block.bytes);
  ArenaOf(*block.account)
      .Free({reinterpret_cast<uint64_t>(block.address), block.bytes, 0}, block.account->label());
}

}  // namespace xpud::memory
