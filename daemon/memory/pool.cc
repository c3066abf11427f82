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

}  // namespace

Pool::~Pool() {
  for (const auto& chunk : chunks_) Unpoison(chunk->address(), chunk->bytes());
}

absl::Status Pool::OutOfMemory(uint64_t asked, const std::string& cause) const {
  return DeviceOutOfMemory(asked, index_, device_.properties().total_memory, used_bytes(), cause);
}

absl::Status Pool::Grow(uint64_t bytes) {
  const uint64_t wanted =
      std::max(kChunkBytes, (RoundSize(bytes) + kChunkStep - 1) / kChunkStep * kChunkStep);
  if (chunk_bytes_ + wanted > device_.properties().total_memory) {
    return OutOfMemory(bytes);
  }
  auto chunk = device_.AllocateChunk(wanted);
  if (absl::IsResourceExhausted(chunk.status()))
    return OutOfMemory(bytes, std::string(absl::StripPrefix(chunk.status().message(), kOutOfMemoryOpening)));
  RETURN_IF_ERROR(chunk.status());
  ranges_.AddRegion(reinterpret_cast<uint64_t>((*chunk)->address()), (*chunk)->bytes());
  Poison((*chunk)->address(), (*chunk)->bytes());
  chunk_bytes_ += wanted;
  chunks_.push_back(*std::move(chunk));
  return absl::OkStatus();
}

absl::StatusOr<Block> Pool::Allocate(uint64_t bytes, uint32_t tenant, Zero zero) {
  if (bytes > device_.properties().total_memory) return OutOfMemory(bytes);
  auto range = ranges_.Allocate(bytes, tenant);
  if (!range) {
    Trim();
    RETURN_IF_ERROR(Grow(bytes));
    range = ranges_.Allocate(bytes, tenant);
    XPUD_CHECK(range.has_value());
  }
  peak_ = std::max(peak_, used_bytes());
  const Block block = {reinterpret_cast<std::byte*>(range->address), range->bytes, tenant};
  Unpoison(block.address, block.bytes);
  if (range->tenant != 0 && range->tenant != tenant) {
    if (absl::Status status = zero(block.address, block.bytes); !status.ok()) {
      ranges_.Free(*range, range->tenant);
      Poison(block.address, block.bytes);
      return status;
    }
  }
  return block;
}

void Pool::Free(const Block& block) {
  ranges_.Free({reinterpret_cast<uint64_t>(block.address), block.bytes, 0}, block.tenant);
  Poison(block.address, block.bytes);
}

void Pool::Trim() {
  while (const auto region = ranges_.TakeFreeRegion()) {
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
