// Host memory that the daemon shares, handed out in blocks: sizes in classes of at most a quarter's waste,
// cut one after another from memories of 16 MiB and more; a freed block serves its class again once the
// commands that use it have completed. Under Core's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/base/mapping.h"

namespace xpud::client {

class HostCache {
 public:
  using IsComplete = absl::FunctionRef<bool(uint32_t queue, uint64_t sequence)>;
  struct Memory;
  struct Block {
    std::byte* address = nullptr;
    uint64_t bytes = 0;  // of its class
    Memory* memory = nullptr;
    bool taken = false;
    std::vector<std::pair<uint32_t, uint64_t>> uses;  // the last command of each queue that uses it
  };
  struct Memory {
    uint32_t id = 0;
    Mapping mapping;
    uint64_t cut = 0;          // bytes from its start that are blocks
    size_t taken = 0;          // blocks
    std::deque<Block> blocks;  // by address
  };
  struct Place {
    Block* block = nullptr;  // null: the bytes lie in none
    uint32_t memory = 0;
    uint64_t offset = 0;
  };

  // The size of a block for so many bytes.
  static uint64_t ClassOf(uint64_t bytes);
  // A block for that, or null: more memory is needed.
  Block* Take(uint64_t bytes, IsComplete complete);
  // How large the next memory should be, given such a request; or `least`, has to be.
  uint64_t NextMemoryBytes(uint64_t bytes, bool least) const;
  void Add(uint32_t id, Mapping mapping);
  void Give(Block* block);
  // Takes a memory out that nobody holds and no command uses.
  std::unique_ptr<Memory> TakeIdle(IsComplete complete);
  uint64_t free_bytes() const { return free_bytes_; }  // of memories that nobody holds

  // Where bytes of one taken block lie.
  Place Find(std::span<const std::byte> bytes) const;
  bool empty() const { return memories_.empty(); }
  static void Use(Block& block, uint32_t queue, uint64_t sequence);
  static bool IsUnused(Block& block, IsComplete complete);  // by commands

 private:
  Block* TakeFree(uint64_t size, IsComplete complete);
  Block* Cut(uint64_t size);
  void Hold(Block& block);

  std::map<const std::byte*, std::unique_ptr<Memory>> memories_;  // by address
  std::map<uint64_t, std::deque<Block*>> free_;                   // by class, the longest free first
  uint64_t bytes_ = 0, free_bytes_ = 0;
};

}  // namespace xpud::client
