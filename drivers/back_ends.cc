// The one place that names the back ends. The CPU comes first, so that it is the device of those who do not
// choose.
#include "drivers/cpu/driver.h"
#include "drivers/cuda/driver.h"
#include "drivers/frontend/driver.h"

namespace xpud::drivers {

std::vector<std::unique_ptr<Driver>> CreateDrivers(std::string& report) {
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<cpu::CpuDriver>());
  std::string reason;
  if (auto driver = cuda::CudaDriver::Create(reason)) {
    drivers.push_back(std::move(driver));
  } else {
    report = "cuda: " + reason;
  }
  return drivers;
}

}  // namespace xpud::drivers
