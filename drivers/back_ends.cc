// The one place that names the back ends.
#include "drivers/cpu/driver.h"
#include "drivers/frontend/driver.h"

namespace xpud::drivers {

std::vector<std::unique_ptr<Driver>> CreateDrivers() {
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<cpu::CpuDriver>());
  return drivers;
}

}  // namespace xpud::drivers
