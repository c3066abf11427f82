// Pages without an address, zeroed and populated when touched: private ones of a single mapping, or a memfd.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cpu/device.h"
#include "drivers/frontend/context.h"
#include "proto/base/unique_fd.h"

namespace xpud::drivers::cpu {

class CpuPhysicalBlock final : public PhysicalBlock {
 public:
  enum class Kind { kPrivate, kShared };

  // Creates new memory, which is charged to the device, or imports that of any process. Refuses an import
  // that is smaller than requested or could still shrink. Imported memory is shared.
  static ze_result_t Create(CpuDevice& device, const MemoryRequest& request, Kind kind,
                            std::unique_ptr<CpuPhysicalBlock>& block);
  ~CpuPhysicalBlock() override;

  size_t size() const override { return size_; }
  ze_result_t Export(int& fd) const override;
  // -1 for private pages, which are zero in each new mapping.
  int fd() const { return fd_.get(); }

 private:
  CpuPhysicalBlock(CpuDevice& device, size_t size) : device_(device), size_(size) {}
  ze_result_t Charge(bool imported);
  ze_result_t MakeFd();
  ze_result_t Import(int fd);

  CpuDevice& device_;
  const size_t size_;
  uint64_t charged_ = 0;
  UniqueFd fd_;
};

}  // namespace xpud::drivers::cpu
