#include "daemon/memory/pool.h"

#include <algorithm>

#include "absl/strings/strip.h"
#include "daemon/memory/poison.h"
#include "proto/base/check.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"

namespace xpud::memory {
namespace {

constexpr uint64_t kChunkBytes = 64 << 20;
constexpr uint64_t kChunkStep = 2 << 20;
constexpr uint64_t kMaxSpareBytes = 2 * kChunkBytes;  // free memory that slabs of small sizes may retain

}  // namespace

Pool::~Pool() {
  for (const auto& chunk : chunks_) Unpoison(chunk->address(), chunk->bytes());
}

Pool::Pool(executor::Device& device, uint32_t index)
    : device_(device), index_(index), ledger_(device.properties().total_memory) {}

absl::Status Pool::Exhausted(uint64_t asked, const std::string& cause) const {
  return OutOfMemory(asked, index_, ledger_.capacity(), shortage(), cause);
}

absl::Status Pool::Grow(uint64_t bytes) {
  const uint64_t wanted =
      std::max(kChunkBytes, (RoundSize(bytes) + kChunkStep - 1) / kChunkStep * kChunkStep);
  if (chunk_bytes_ + wanted > ledger_.capacity()) return Exhausted(bytes);
  auto chunk = device_.AllocateChunk(wanted);
  if (absl::IsResourceExhausted(chunk.status()))
    return Exhausted(bytes, std::string(absl::StripPrefix(chunk.status().message(), kOutOfMemoryOpening)));
  RETURN_IF_ERROR(chunk.status());
  ranges_.AddRegion(reinterpret_cast<uint64_t>((*chunk)->address()), (*chunk)->bytes());
  Poison((*chunk)->address(), (*chunk)->bytes());
  chunk_bytes_ += wanted;
  chunks_.push_back(*std::move(chunk));
  return absl::OkStatus();
}

absl::Status Pool::Secure(uint64_t bytes) {
  if (bytes > ledger_.capacity()) return Exhausted(bytes);
  const auto missing = [&] {
    return reserved_bytes() + bytes - std::min(chunk_bytes_, reserved_bytes() + bytes);
  };
  if (missing() == 0) [[likely]]
    return absl::OkStatus();
  if (absl::Status grown = Grow(missing()); grown.ok()) return grown;
  ledger_.Reclaim();
  return missing() == 0 ? absl::OkStatus() : Grow(missing());
}

absl::Status Pool::MakeRoom(uint64_t bytes) {
  if (ranges_.Fits(bytes)) [[likely]]
    return absl::OkStatus();
  // A program whose sizes take turns would have slabs returned again and again. Then the pool grows instead.
  if (!ranges_.IsReturnPaid() && Grow(bytes).ok()) return absl::OkStatus();
  ranges_.ReturnSlabs();
  if (ranges_.Fits(bytes)) return absl::OkStatus();
  Trim();
  return Grow(bytes);
}

absl::Status Pool::GiveCredit(Ledger::Account& account, uint64_t more, uint64_t block) {
  RETURN_IF_ERROR(Secure(more));
  RETURN_IF_ERROR(MakeRoom(block));
  ledger_.Give(account, more);
  return absl::OkStatus();
}

absl::StatusOr<Block> Pool::Allocate(uint64_t bytes, Ledger::Account& account, Zero zero) {
  if (bytes > ledger_.capacity()) return Exhausted(bytes);
  const uint64_t rounded = RoundSize(bytes),
                 credit = account.credit() - std::min(account.credit(), account.held());
  if (rounded > credit) RETURN_IF_ERROR(Secure(rounded - credit));
  RETURN_IF_ERROR(MakeRoom(bytes));
  const uint32_t tenant = account.label();
  const auto range = ranges_.Allocate(bytes, tenant);
  XPUD_CHECK(range.has_value());
  peak_ = std::max(peak_, used_bytes());
  const Block block = {reinterpret_cast<std::byte*>(range->address), range->bytes, &account};
  ledger_.Hold(account, block.bytes);
  Unpoison(block.address, block.bytes);
  if (range->tenant != 0 && range->tenant != tenant) {
    if (absl::Status status = zero(block.address, block.bytes); !status.ok()) {
      ledger_.Release(account, block.bytes);
      ranges_.Free(*range, range->tenant);
      Poison(block.address, block.bytes);
      return status;
    }
  }
  return block;
}

void Pool::Free(const Block& block) {
  ledger_.Release(*block.account, block.bytes);
  ranges_.Free({reinterpret_cast<uint64_t>(block.address), block.bytes, 0}, block.account->label());
  Poison(block.address, block.bytes);
}

void Pool::Trim() {
  if (chunk_bytes_ > reserved_bytes() + kMaxSpareBytes) ranges_.ReturnSlabs();
  while (const auto region =
             ranges_.TakeFreeRegion(chunk_bytes_ - std::min(chunk_bytes_, reserved_bytes()))) {
    const auto chunk = std::find_if(chunks_.begin(), chunks_.end(), [&](const auto& c) {
      return reinterpret_cast<uint64_t>(c->address()) == *region;
    });
    XPUD_CHECK(chunk != chunks_.end());
    chunk_bytes_ -= (*chunk)->bytes();
    Unpoison((*chunk)->address(), (*chunk)->bytes());
    chunks_.erase(chunk);
  }
}

}  // namespace xpud::memory
