#include "daemon/memory/arena.h"

#include <algorithm>
#include <utility>

#include "daemon/memory/address_sanitizer.h"
#include "daemon/memory/residency.h"
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

Arena::Arena(executor::Device& device, Totals& totals, Residency& residency, const Tenant& tenant)
    : device_(device), totals_(totals), residency_(residency), tenant_(tenant) {
  residency_.Add(*this);
}

Arena::~Arena() {
  totals_.used_bytes -= used_bytes();
  while (!chunks_.empty()) Remove(std::move(chunks_.extract(chunks_.begin()).mapped()));
  residency_.Remove(*this);
}

uint64_t Arena::ChunkSizeFor(uint64_t bytes) {
  return std::max(kSlabBytes, RoundUp(RoundSize(bytes), kChunkStep));
}

uint64_t Arena::SizeToGrow(uint64_t bytes, uint64_t most) const {
  const uint64_t usual =
      std::clamp(RoundUp(chunk_bytes_ / kUsualPart, kMinChunkBytes), kMinChunkBytes, kMaxUsualBytes);
  return std::max(ChunkSizeFor(bytes), std::min(usual, most / kChunkStep * kChunkStep));
}

absl::Status Arena::Grow(uint64_t bytes, uint64_t most) {
  ASSIGN_OR_RETURN(auto memory, device_.AllocateChunk(SizeToGrow(bytes, most)));
  Add(std::move(memory), Chunk::Place::kDevice);
  return absl::OkStatus();
}

absl::Status Arena::GrowAway(uint64_t bytes, uint64_t most) {
  ASSIGN_OR_RETURN(auto memory, device_.ReserveChunk(SizeToGrow(bytes, most)));
  Add(std::move(memory), Chunk::Place::kAway);
  return absl::OkStatus();
}

void Arena::Add(std::unique_ptr<executor::Chunk> memory, Chunk::Place place) {
  const uint64_t address = reinterpret_cast<uint64_t>(memory->address()), bytes = memory->bytes();
  ranges_.AddRegion(address, bytes);
  chunk_bytes_ += bytes;
  totals_.chunk_bytes += bytes;
  auto chunk = std::make_unique<Chunk>();
  chunk->memory = std::move(memory);
  chunk->arena = this;
  chunk->place = place;
  if (chunk->is_on_device()) MovedIn(bytes);
  Chunk& added = *chunk;
  chunks_[address] = std::move(chunk);
  residency_.Added(added);
  if (!is_watched()) ForbidAccess(added.memory->address(), bytes);
}

void Arena::Remove(std::unique_ptr<Chunk> chunk) {
  const uint64_t bytes = chunk->bytes();
  AllowAccess(chunk->memory->address(), bytes);
  chunk_bytes_ -= bytes;
  totals_.chunk_bytes -= bytes;
  if (chunk->is_on_device()) MovedOut(bytes);
  std::erase(watch_.wanted, chunk.get());
  chunk->arena = nullptr;
  residency_.Removed(std::move(chunk));
}

void Arena::Trim(uint64_t keep) {
  if (chunk_bytes_ > keep + kMaxSpareBytes || used_bytes() == 0) ranges_.ReturnSlabs();
  while (const auto region = ranges_.TakeFreeRegion(chunk_bytes_ - std::min(chunk_bytes_, keep))) {
    auto chunk = chunks_.extract(*region);
    XPUD_CHECK(!chunk.empty());
    Remove(std::move(chunk.mapped()));
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
  if (!is_watched()) ForbidAccess(AddressOf(range), range.bytes);
}

void Arena::RemoveUser(User& user) {
  std::erase(users_, &user);
  const auto is_of = [&](const Chunk::Use& use) { return use.user == &user; };
  std::erase_if(watch_.earlier, is_of);
  for (const auto& [address, chunk] : chunks_) std::erase_if(chunk->uses, is_of);
}

}  // namespace xpud::memory
