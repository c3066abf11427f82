// A range of zeroed memory, populated when touched: private, or backed by a memfd that other processes can
// map.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "drivers/cpu/address_range.h"
#include "drivers/cpu/pages.h"
#include "drivers/cpu/physical_block.h"
#include "drivers/frontend/memory_block.h"

namespace xpud::drivers::cpu {

class CpuMemoryBlock final : public MemoryBlock {
 public:
  // Creates new memory, which is charged to the device, or maps exported memory of any process. Refuses an
  // import that is smaller than requested or could still shrink.
  static ze_result_t Create(CpuDevice& device, const MemoryRequest& request,
                            std::unique_ptr<MemoryBlock>& block);

  void* base() const override { return range_->base(); }
  size_t size() const override { return pages_->size(); }
  size_t page_size() const override { return PageSizeOf(RoundUp(size(), kPage)); }
  ze_result_t Export(int& fd) const override { return pages_->Export(fd); }

 private:
  CpuMemoryBlock(std::unique_ptr<CpuPhysicalBlock> pages, std::unique_ptr<CpuAddressRange> range)
      : pages_(std::move(pages)), range_(std::move(range)) {}

  const std::unique_ptr<const CpuPhysicalBlock> pages_;
  const std::unique_ptr<const CpuAddressRange> range_;  // the first bytes of it are the pages
};

}  // namespace xpud::drivers::cpu
