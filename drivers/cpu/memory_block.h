// A range of zeroed memory, populated as it is touched: private, or backed by a memfd that other processes
// can map. Owned by an AllocationMap. Immutable; any thread.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/frontend/context.h"
#include "proto/base/unique_fd.h"

namespace xpud::drivers::cpu {

class MemoryBlock {
 public:
  static ze_result_t Create(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block);
  // Another process's (or this one's) exported memory. Refuses what is smaller than asked for or could still
  // shrink.
  static ze_result_t Import(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block);
  ~MemoryBlock();
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  void* base() const { return base_; }
  size_t size() const { return size_; }
  // Invalid for private memory.
  const UniqueFd& fd() const { return fd_; }
  // Page size that the memory is likely to have.
  size_t page_size() const;

 private:
  MemoryBlock() = default;
  ze_result_t Map(const MemoryRequest& request);

  void* base_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
  UniqueFd fd_;
};

}  // namespace xpud::drivers::cpu
