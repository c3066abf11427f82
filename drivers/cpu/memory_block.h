// A range of zeroed memory, populated as it is touched: private, or backed by a memfd that other processes
// can map.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cpu/device.h"
#include "drivers/frontend/context.h"
#include "proto/base/unique_fd.h"

namespace xpud::drivers::cpu {

class CpuMemoryBlock final : public MemoryBlock {
 public:
  // New memory, which counts against the device, or another process's (or this one's) exported memory.
  // Refuses to import what is smaller than asked for or could still shrink.
  static ze_result_t Create(CpuDevice& device, const MemoryRequest& request,
                            std::unique_ptr<MemoryBlock>& block);
  ~CpuMemoryBlock() override;

  void* base() const override { return base_; }
  size_t size() const override { return size_; }
  size_t page_size() const override;
  ze_result_t Export(int& fd) const override;

 private:
  explicit CpuMemoryBlock(CpuDevice& device) : device_(device) {}
  ze_result_t Charge(const MemoryRequest& request);
  ze_result_t MakeFd(size_t size);
  ze_result_t Import(int fd, size_t size);
  ze_result_t Map(const MemoryRequest& request);

  CpuDevice& device_;
  uint64_t charged_ = 0;
  void* base_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
  size_t reserved_ = 0;  // of which the first mapped_ bytes are memory
  UniqueFd fd_;          // invalid for private memory
};

}  // namespace xpud::drivers::cpu
