#include "drivers/cpu/driver.h"

#include <cstring>

#include "drivers/cpu/context.h"

namespace xpud::drivers::cpu {

CpuDriver::CpuDriver() : plain_(IsPlain()) {
  const uint32_t count = DeviceCount();
  for (uint32_t i = 0; i < count; ++i) devices_.push_back(new CpuDevice(this, i, count));
}

void CpuDriver::GetProperties(ze_driver_properties_t& properties) const {
  std::memset(&properties.uuid, 0, sizeof(properties.uuid));
  std::memcpy(properties.uuid.id, "xpud-cpu-driver", 15);
  properties.driverVersion = 1;
}

ze_result_t CpuDriver::CreateContext(const ze_context_desc_t&, std::unique_ptr<Context>& context) {
  context = std::make_unique<CpuContext>(this, static_cast<CpuDevice&>(*devices_.front()));
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cpu
