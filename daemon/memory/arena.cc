#include "daemon/memory/arena.h"

#include <algorithm>
#include <utility>

#include "daemon/memory/address_sanitizer.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::memory {
namespace {

constexpr uint64_t kChunkBytes = 64 << 20;
constexpr uint64_t kChunkStep = 2 << 20;
constexpr uint64_t kMaxSpareBytes = 2 * kChunkBytes;  // free memory that slabs of small sizes may retain

const void* AddressOf(const Arena::Range& range) { return reinterpret_cast<const void*>(range.address); }

}  // namespace

Arena::~Arena() {
  for (const auto& chunk : chunks_) AllowAccess(chunk->address(), chunk->bytes());
}

uint64_t Arena::ChunkSizeFor(uint64_t bytes) {
  return std::max(kChunkBytes, (RoundSize(bytes) + kChunkStep - 1) / kChunkStep * kChunkStep);
}

absl::Status Arena::Grow(uint64_t bytes) {
  ASSIGN_OR_RETURN(auto chunk, device_.AllocateChunk(ChunkSizeFor(bytes)));
  ranges_.AddRegion(reinterpret_cast<uint64_t>(chunk->address()), chunk->bytes());
  ForbidAccess(chunk->address(), chunk->bytes());
  chunk_bytes_ += chunk->bytes();
  chunks_.push_back(std::move(chunk));
  return absl::OkStatus();
}

void Arena::Trim(uint64_t keep) {
  if (chunk_bytes_ > keep + kMaxSpareBytes) ranges_.ReturnSlabs();
  while (const auto region = ranges_.TakeFreeRegion(chunk_bytes_ - std::min(chunk_bytes_, keep))) {
    const auto chunk = std::find_if(chunks_.begin(), chunks_.end(), [&](const auto& c) {
      return reinterpret_cast<uint64_t>(c->address()) == *region;
    });
    XPUD_CHECK(chunk != chunks_.end());
    chunk_bytes_ -= (*chunk)->bytes();
    AllowAccess((*chunk)->address(), (*chunk)->bytes());
    chunks_.erase(chunk);
  }
}

std::optional<Arena::Range> Arena::Allocate(uint64_t bytes, uint32_t tenant) {
  const auto range = ranges_.Allocate(bytes, tenant);
  if (range.has_value()) AllowAccess(AddressOf(*range), range->bytes);
  return range;
}

void Arena::Free(const Range& range, uint32_t tenant) {
  ranges_.Free(range, tenant);
  ForbidAccess(AddressOf(range), range.bytes);
}

}  // namespace xpud::memory
