#include "daemon/memory/arena.h"

#include <algorithm>
#include <utility>

#include "daemon/memory/address_sanitizer.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::memory {
namespace {

// A chunk is at least so large, and usually a quarter of what the arena has.
constexpr uint64_t kMinChunkBytes = 16 << 20, kMaxUsualBytes = 64 << 20;
constexpr uint64_t kUsualPart = 4;
constexpr uint64_t kChunkStep = 2 << 20;
constexpr uint64_t kMaxSpareBytes = 128 << 20;  // free memory that slabs of small sizes may retain

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

const void* AddressOf(const Arena::Range& range) { return reinterpret_cast<const void*>(range.address); }

}  // namespace

Arena::~Arena() {
  for (const auto& chunk : chunks_) AllowAccess(chunk->address(), chunk->bytes());
  totals_.chunk_bytes -= chunk_bytes_;
  totals_.used_bytes -= used_bytes();
}

uint64_t Arena::ChunkSizeFor(uint64_t bytes) {
  return std::max(kSlabBytes, RoundUp(RoundSize(bytes), kChunkStep));
}

absl::Status Arena::Grow(uint64_t bytes, uint64_t most) {
  const uint64_t usual =
      std::clamp(RoundUp(chunk_bytes_ / kUsualPart, kMinChunkBytes), kMinChunkBytes, kMaxUsualBytes);
  const uint64_t size = std::max(ChunkSizeFor(bytes), std::min(usual, most / kChunkStep * kChunkStep));
  ASSIGN_OR_RETURN(auto chunk, device_.AllocateChunk(size));
  ranges_.AddRegion(reinterpret_cast<uint64_t>(chunk->address()), chunk->bytes());
  ForbidAccess(chunk->address(), chunk->bytes());
  chunk_bytes_ += chunk->bytes();
  totals_.chunk_bytes += chunk->bytes();
  chunks_.push_back(std::move(chunk));
  return absl::OkStatus();
}

void Arena::Trim(uint64_t keep) {
  if (chunk_bytes_ > keep + kMaxSpareBytes || used_bytes() == 0) ranges_.ReturnSlabs();
  while (const auto region = ranges_.TakeFreeRegion(chunk_bytes_ - std::min(chunk_bytes_, keep))) {
    const auto chunk = std::find_if(chunks_.begin(), chunks_.end(), [&](const auto& c) {
      return reinterpret_cast<uint64_t>(c->address()) == *region;
    });
    XPUD_CHECK(chunk != chunks_.end());
    chunk_bytes_ -= (*chunk)->bytes();
    totals_.chunk_bytes -= (*chunk)->bytes();
    AllowAccess((*chunk)->address(), (*chunk)->bytes());
    chunks_.erase(chunk);
  }
}

std::optional<Arena::Range> Arena::Allocate(uint64_t bytes) {
  const auto range = ranges_.Allocate(bytes);
  if (!range.has_value()) return std::nullopt;
  totals_.used_bytes += range->bytes;
  AllowAccess(AddressOf(*range), range->bytes);
  return range;
}

void Arena::Free(const Range& range) {
  totals_.used_bytes -= range.bytes;
  ranges_.Free(range);
  ForbidAccess(AddressOf(range), range.bytes);
}

}  // namespace xpud::memory
