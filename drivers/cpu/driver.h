// The CPU back end's driver: what drivers/back_ends.cc creates. It owns the devices. Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "drivers/cpu/device.h"
#include "drivers/frontend/driver.h"

namespace xpud::drivers::cpu {

inline constexpr xpud_back_end_t kBackEnd = {.name = "cpu",
                                             .kind = "cpu",
                                             .code = XPUD_CODE_HOST,
                                             .own_process = 0,
                                             .synchronous = 1,
                                             .append_threads = 1,
                                             .takes_pageable = 1};

class CpuDriver final : public Driver {
 public:
  CpuDriver();

  const xpud_back_end_t& BackEnd() const override { return kBackEnd; }
  void GetProperties(ze_driver_properties_t& properties) const override;
  void GetIpcProperties(ze_driver_ipc_properties_t& properties) const override { properties.flags = 0; }
  std::span<Device* const> Devices() const override { return devices_; }
  ze_result_t CreateContext(const ze_context_desc_t& desc, std::unique_ptr<Context>& context) override;

 private:
  std::vector<Device*> devices_;  // at least one; owned by the handle table, as every device is
};

}  // namespace xpud::drivers::cpu
