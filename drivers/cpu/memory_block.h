// A range of zeroed memory, populated when touched: private, or backed by a memfd that other processes can
// map.
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
  // Creates new memory, which is charged to the device, or maps exported memory of any process. Refuses an
  // import that is smaller than requested or could still shrink.
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
  size_t reserved_ = 0;  // the first mapped_ bytes of it are memory
  UniqueFd fd_;          // invalid for private memory
};

}  // namespace xpud::drivers::cpu
