// Physical memory of a GPU (cuMemCreate), which address ranges map and other processes can map too.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cuda/device.h"
#include "drivers/frontend/physical_block.h"

namespace xpud::drivers::cuda {

// The unit of physical memory, of its mappings and of reserved addresses.
inline constexpr size_t kPage = size_t{2} << 20;

constexpr size_t RoundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

class CudaPhysicalBlock final : public PhysicalBlock {
 public:
  // Creates new memory, or imports exported memory of any process; -1: new memory. Whether imported memory is
  // large enough shows when it is mapped. REQUIRES: an active device; whole pages.
  static ze_result_t Create(CudaDevice& device, size_t size, int import_fd,
                            std::unique_ptr<CudaPhysicalBlock>& block);
  ~CudaPhysicalBlock() override;

  size_t size() const override { return size_; }
  ze_result_t Export(int& fd) const override;
  CudaDevice& device() const { return device_; }
  CUmemGenericAllocationHandle handle() const { return handle_; }
  bool imported() const { return imported_; }

 private:
  CudaPhysicalBlock(CudaDevice& device, size_t size, bool imported)
      : device_(device), size_(size), imported_(imported) {}
  ze_result_t Import(int fd);

  CudaDevice& device_;
  const size_t size_;
  const bool imported_;
  CUmemGenericAllocationHandle handle_ = 0;
};

}  // namespace xpud::drivers::cuda
