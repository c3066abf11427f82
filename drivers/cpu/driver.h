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

// With XPUD_CPU_PLAIN=1, for tests: like the driver of another vendor, without our extensions. Its immediate
// lists run nothing during the append, and keep no order but that of barriers.
inline constexpr xpud_back_end_t kPlainBackEnd = [] {
  xpud_back_end_t plain = kBackEnd;
  plain.synchronous = 0;
  plain.takes_pageable = 0;
  return plain;
}();

class CpuDriver final : public Driver {
 public:
  CpuDriver();

  const xpud_back_end_t& BackEnd() const override { return plain_ ? kPlainBackEnd : kBackEnd; }
  bool HasExtensions() const override { return !plain_; }
  bool HasPciProperties() const override { return PciAddressText(0).has_value(); }
  void GetProperties(ze_driver_properties_t& properties) const override;
  void GetIpcProperties(ze_driver_ipc_properties_t& properties) const override { properties.flags = 0; }
  std::span<Device* const> Devices() const override { return devices_; }
  ze_result_t CreateContext(const ze_context_desc_t& desc, std::unique_ptr<Context>& context) override;

 private:
  const bool plain_;
  std::vector<Device*> devices_;  // at least one; owned by the handle table, as every device is
};

}  // namespace xpud::drivers::cpu
