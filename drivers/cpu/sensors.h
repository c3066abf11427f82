// Sensors of the processor, read from files in /proc and /sys. A virtual machine has few of them.
// Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "drivers/frontend/sensors.h"

namespace xpud::drivers::cpu {

class CpuSensors final : public Sensors {
 public:
  // `root` is a prefix of each path, for tests. Finds the files that exist.
  explicit CpuSensors(const std::string& root);

  // Memory of the machine. Memory that is available without swapping counts as free.
  ze_result_t ReadMemory(uint64_t& size, uint64_t& free) const override;
  // Sum of all sockets, if this user may read it.
  ze_result_t ReadEnergy(uint64_t& microjoules) const override;
  // The highest temperature of all processors.
  ze_result_t ReadTemperature(double& celsius) const override;
  // Mean of all cores. There is no source for throttle reasons.
  ze_result_t ReadFrequency(double& megahertz, zes_freq_throttle_reason_flags_t& reasons) const override;

 private:
  const std::string root_;
  std::vector<std::string> energies_;      // microjoules since some point
  std::vector<std::string> temperatures_;  // thousandths of a degree
};

}  // namespace xpud::drivers::cpu
