// Host memory that the daemon shares, in blocks. Block sizes are in classes that waste at most a quarter;
// blocks are cut one after another from memories of at least 16 MiB. A freed block serves its class again
// once the commands that use it have completed. REQUIRES: Core's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/base/mapping.h"
#include "proto/base/unique_fd.h"

namespace xpud::client {

class HostCache {
 public:
  // Whether a command has completed. Devices as the client numbers them.
  using IsComplete = absl::FunctionRef<bool(uint32_t device, uint32_t queue, uint64_t sequence)>;
  struct Memory;
  struct Block {
    std::byte* address = nullptr;
    uint64_t bytes = 0;  // of its class
    Memory* memory = nullptr;
    bool taken = false;
    struct Use {
      uint32_t device, queue;
      uint64_t sequence;
    };
    std::vector<Use> uses;  // the last command of each queue that uses it
  };
  struct Memory {
    uint32_t id = 0;
    UniqueFd fd;
    Mapping mapping;
    uint64_t devices = 0;      // bit d: shared with the daemon's device d
    uint64_t cut = 0;          // bytes from its start that are blocks
    size_t taken = 0;          // blocks
    std::deque<Block> blocks;  // by address
  };
  struct Place {
    Block* block = nullptr;  // null: the bytes lie in none
    uint32_t memory = 0;
    uint64_t offset = 0;
  };

  // Returns the size of a block for `bytes`.
  static uint64_t ClassOf(uint64_t bytes);
  // Returns a block, or nullptr if more memory is needed.
  Block* Take(uint64_t bytes, IsComplete complete);
  // Returns the size of the next memory, for a block of `bytes`. `least`: no more than is needed.
  uint64_t NextMemoryBytes(uint64_t bytes, bool least) const;
  void Add(uint32_t id, UniqueFd fd, Mapping mapping, uint64_t devices);
  void Give(Block* block);
  // Removes a memory without taken blocks that no command uses. Returns nullptr if there is none.
  std::unique_ptr<Memory> TakeIdle(IsComplete complete);
  uint64_t free_bytes() const { return free_bytes_; }  // of memories without taken blocks

  // Returns the place of bytes in one taken block.
  Place Find(std::span<const std::byte> bytes) const;
  bool empty() const { return memories_.empty(); }
  static void Use(Block& block, uint32_t device, uint32_t queue, uint64_t sequence);
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
