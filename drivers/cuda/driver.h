// The CUDA back end's driver: what drivers/back_ends.cc creates where libcuda.so.1 finds a GPU that we can
// use. Any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drivers/cuda/device.h"
#include "drivers/frontend/driver.h"

namespace xpud::drivers::cuda {

// A launch is mostly the driver's time, of which several threads make better use.
inline constexpr xpud_back_end_t kBackEnd = {.name = "cuda",
                                             .kind = "gpu",
                                             .code = XPUD_CODE_PTX,
                                             .own_process = 1,
                                             .synchronous = 0,
                                             .append_threads = 4,
                                             .takes_pageable = 1};

class CudaDriver final : public Driver {
 public:
  // Null, with a reason of one line, where there is nothing to drive.
  static std::unique_ptr<CudaDriver> Create(std::string& reason);

  const xpud_back_end_t& BackEnd() const override { return kBackEnd; }
  void GetProperties(ze_driver_properties_t& properties) const override;
  void GetIpcProperties(ze_driver_ipc_properties_t& properties) const override { properties.flags = 0; }
  std::span<Device* const> Devices() const override { return devices_; }
  void* FindExtensionFunction(const char* name) const override;
  // The GPU's own context is made here where there is one GPU, otherwise when a GPU is first used.
  ze_result_t CreateContext(const ze_context_desc_t& desc, std::unique_ptr<Context>& context) override;

  // Maps memory that the process has for all devices, at its own address.
  ze_result_t ImportPointer(void* pointer, size_t size) const;
  ze_result_t ReleasePointer(void* pointer) const;

 private:
  CudaDriver() = default;

  // Owned by the handle table, as every device is.
  std::vector<CudaDevice*> cuda_devices_;
  std::vector<Device*> devices_;
};

}  // namespace xpud::drivers::cuda
