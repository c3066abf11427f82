#include "sdk/client/host_cache.h"

#include <algorithm>
#include <bit>

namespace xpud::client {
namespace {

constexpr uint64_t kMin = 4 << 10;          // pages, so that blocks share none
constexpr uint64_t kPowersUpTo = 64 << 10;  // quarters of powers of two above
constexpr uint64_t kUnit = 64 << 10;        // of memories
constexpr uint64_t kMinMemory = 16 << 20, kMaxGrowth = uint64_t{1} << 30;
constexpr size_t kMaxPolls = 16;  // free blocks of a class that are looked at

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

uint64_t HostCache::ClassOf(uint64_t bytes) {
  if (bytes <= kPowersUpTo) return std::bit_ceil(std::max(bytes, kMin));
  return RoundUp(bytes, std::bit_ceil(bytes) / 8);
}

uint64_t HostCache::NextMemoryBytes(uint64_t bytes, bool least) const {
  const uint64_t growth = least ? kUnit : std::clamp(bytes_ / 4, kMinMemory, kMaxGrowth);
  return RoundUp(std::max(ClassOf(bytes), growth), kUnit);
}

bool HostCache::IsUnused(Block& block, IsComplete complete) {
  std::erase_if(block.uses,
                [&](const Block::Use& use) { return complete(use.device, use.queue, use.sequence); });
  return block.uses.empty();
}

HostCache::Block* HostCache::Take(uint64_t bytes, IsComplete complete) {
  const uint64_t size = ClassOf(bytes);
  Block* block = TakeFree(size, complete);
  if (block == nullptr) block = Cut(size);
  if (block != nullptr) Hold(*block);
  return block;
}

HostCache::Block* HostCache::TakeFree(uint64_t size, IsComplete complete) {
  const auto found = free_.find(size);
  if (found == free_.end()) return nullptr;
  std::deque<Block*>& blocks = found->second;
  const auto end = blocks.begin() + static_cast<ptrdiff_t>(std::min(blocks.size(), kMaxPolls));
  const auto at = std::find_if(blocks.begin(), end, [&](Block* block) { return IsUnused(*block, complete); });
  if (at == end) return nullptr;
  Block* const block = *at;
  blocks.erase(at);
  return block;
}

HostCache::Block* HostCache::Cut(uint64_t size) {
  for (auto& [address, memory] : memories_) {
    if (memory->mapping.size() - memory->cut < size) continue;
    Block& block = memory->blocks.emplace_back();
    block.address = memory->mapping.data() + memory->cut;
    block.bytes = size;
    block.memory = memory.get();
    memory->cut += size;
    return &block;
  }
  return nullptr;
}

void HostCache::Hold(Block& block) {
  block.taken = true;
  if (block.memory->taken++ == 0) free_bytes_ -= block.memory->mapping.size();
}

void HostCache::Add(uint32_t id, UniqueFd fd, Mapping mapping, uint64_t devices) {
  bytes_ += mapping.size();
  free_bytes_ += mapping.size();
  auto memory = std::make_unique<Memory>();
  memory->id = id;
  memory->fd = std::move(fd);
  memory->mapping = std::move(mapping);
  memory->devices = devices;
  const std::byte* const address = memory->mapping.data();
  memories_[address] = std::move(memory);
}

void HostCache::Give(Block* block) {
  block->taken = false;
  if (--block->memory->taken == 0) free_bytes_ += block->memory->mapping.size();
  free_[block->bytes].push_back(block);
}

std::unique_ptr<HostCache::Memory> HostCache::TakeIdle(IsComplete complete) {
  const auto idle = std::find_if(memories_.begin(), memories_.end(), [&](const auto& entry) {
    Memory& memory = *entry.second;
    return memory.taken == 0 && std::all_of(memory.blocks.begin(), memory.blocks.end(),
                                            [&](Block& block) { return IsUnused(block, complete); });
  });
  if (idle == memories_.end()) return nullptr;
  std::unique_ptr<Memory> memory = std::move(idle->second);
  memories_.erase(idle);
  for (auto& [size, blocks] : free_)
    std::erase_if(blocks, [&](const Block* block) { return block->memory == memory.get(); });
  bytes_ -= memory->mapping.size();
  free_bytes_ -= memory->mapping.size();
  return memory;
}

HostCache::Place HostCache::Find(std::span<const std::byte> bytes) const {
  auto next = memories_.upper_bound(bytes.data());
  if (next == memories_.begin()) return {};
  Memory& memory = *std::prev(next)->second;
  const auto offset = static_cast<uint64_t>(bytes.data() - memory.mapping.data());
  if (offset >= memory.cut) return {};
  const auto after =
      std::upper_bound(memory.blocks.begin(), memory.blocks.end(), bytes.data(),
                       [](const std::byte* address, const Block& block) { return address < block.address; });
  Block& block = *std::prev(after);
  const auto within = static_cast<uint64_t>(bytes.data() - block.address);
  if (!block.taken || within > block.bytes || bytes.size() > block.bytes - within) return {};
  return {&block, memory.id, offset};
}

void HostCache::Use(Block& block, uint32_t device, uint32_t queue, uint64_t sequence) {
  for (Block::Use& use : block.uses) {
    if (use.device != device || use.queue != queue) continue;
    use.sequence = sequence;
    return;
  }
  block.uses.push_back({device, queue, sequence});
}

}  // namespace xpud::client
