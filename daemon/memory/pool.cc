#include "daemon/memory/pool.h"

#include <algorithm>

#include "absl/strings/strip.h"
#include "proto/base/check.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"

namespace xpud::memory {

Pool::Pool(executor::Device& device, uint32_t index)
    : index_(index), ledger_(device.properties().total_memory), arena_(device) {}

absl::Status Pool::Exhausted(const Ledger::Account& account, uint64_t asked, const std::string& cause) const {
  return OutOfMemory(asked, index_, ledger_.capacity(), ShortageFor(account), cause);
}

absl::Status Pool::Grow(Ledger::Account& account, uint64_t bytes) {
  if (chunk_bytes() + Arena::ChunkSizeFor(bytes) > ledger_.capacity()) return Exhausted(account, bytes);
  absl::Status grown = ArenaOf(account).Grow(bytes);
  if (absl::IsResourceExhausted(grown))
    return Exhausted(account, bytes, std::string(absl::StripPrefix(grown.message(), kOutOfMemoryOpening)));
  return grown;
}

absl::Status Pool::Secure(Ledger::Account& account, uint64_t bytes) {
  if (bytes > ledger_.capacity()) return Exhausted(account, bytes);
  const auto missing = [&] {
    return reserved_bytes() + bytes - std::min(chunk_bytes(), reserved_bytes() + bytes);
  };
  if (HasSpare(bytes, account)) [[likely]] {
    if (missing() == 0) [[likely]]
      return absl::OkStatus();
    if (absl::Status grown = Grow(account, missing()); grown.ok()) return grown;
  }
  ledger_.Reclaim();
  if (!HasSpare(bytes, account)) return Exhausted(account, bytes);
  return missing() == 0 ? absl::OkStatus() : Grow(account, missing());
}

absl::Status Pool::MakeRoom(Ledger::Account& account, uint64_t bytes) {
  Arena& arena = ArenaOf(account);
  if (arena.Fits(bytes)) [[likely]]
    return absl::OkStatus();
  // A program whose sizes take turns would have slabs returned again and again. Then the arena grows instead.
  if (!arena.IsReturnPaid() && Grow(account, bytes).ok()) return absl::OkStatus();
  arena.ReturnSlabs();
  if (arena.Fits(bytes)) return absl::OkStatus();
  Trim();
  return Grow(account, bytes);
}

absl::Status Pool::GiveCredit(Ledger::Account& account, uint64_t more, uint64_t block) {
  RETURN_IF_ERROR(Secure(account, more));
  RETURN_IF_ERROR(MakeRoom(account, block));
  ledger_.Give(account, more);
  return absl::OkStatus();
}

absl::StatusOr<Block> Pool::Allocate(uint64_t bytes, Ledger::Account& account, Zero zero) {
  if (bytes > ledger_.capacity()) return Exhausted(account, bytes);
  const uint64_t rounded = RoundSize(bytes),
                 credit = account.credit() - std::min(account.credit(), account.held());
  Arena& arena = ArenaOf(account);
  if (rounded > credit) RETURN_IF_ERROR(Secure(account, rounded - credit));
  RETURN_IF_ERROR(MakeRoom(account, bytes));
  const uint32_t tenant = account.label();
  const auto range = arena.Allocate(bytes, tenant);
  XPUD_CHECK(range.has_value());
  peak_ = std::max(peak_, used_bytes());
  const Block block = {reinterpret_cast<std::byte*>(range->address), range->bytes, &account, {}};
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
