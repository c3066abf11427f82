// The driver of the CUDA back end, which drivers/back_ends.cc creates if libcuda.so.1 finds a usable GPU.
// Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drivers/cuda/device.h"
#include "drivers/frontend/driver.h"

namespace xpud::drivers::cuda {

// Most of a launch is spent in CUDA's driver, which several threads use better than one.
inline constexpr xpud_back_end_t kBackEnd = {.name = "cuda",
                                             .kind = "gpu",
                                             .code = XPUD_CODE_PTX,
                                             .own_process = 1,
                                             .synchronous = 0,
                                             .append_threads = 4,
                                             .takes_pageable = 1};

class CudaDriver final : public Driver {
 public:
  // Returns null, with a reason of one line, if there is no usable GPU.
  static std::unique_ptr<CudaDriver> Create(std::string& reason);

  const xpud_back_end_t& BackEnd() const override { return kBackEnd; }
  bool HasPciProperties() const override { return true; }
  void GetProperties(ze_driver_properties_t& properties) const override;
  void GetIpcProperties(ze_driver_ipc_properties_t& properties) const override { properties.flags = 0; }
  std::span<Device* const> Devices() const override { return devices_; }
  void* FindExtensionFunction(const char* name) const override;
  // Creates the GPU's CUDA context here if there is one GPU; otherwise each at its first use.
  ze_result_t CreateContext(const ze_context_desc_t& desc, std::unique_ptr<Context>& context) override;

  // Maps existing memory of the process for all devices, at its own address.
  ze_result_t ImportPointer(void* pointer, size_t size) const;
  ze_result_t ReleasePointer(void* pointer) const;

 private:
  CudaDriver() = default;

  // Owned by the handle table, as every device is.
  std::vector<CudaDevice*> cuda_devices_;
  std::vector<Device*> devices_;
};

}  // namespace xpud::drivers::cuda
