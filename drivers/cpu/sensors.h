// Sensors of the processor, as the kernel offers them: files below /proc and /sys, of which a virtual machine
// has few. Any thread.
#pragma once

#include <string>
#include <vector>

#include "drivers/frontend/sensors.h"

namespace xpud::drivers::cpu {

class CpuSensors final : public Sensors {
 public:
  // `root` stands before each path: "" but in tests. Looks for the files there are.
  explicit CpuSensors(const std::string& root);

  // Of the machine's memory: what can be had without swapping is free.
  ze_result_t ReadMemory(uint64_t& size, uint64_t& free) const override;
  // Of all sockets; where this user may read them.
  ze_result_t ReadEnergy(uint64_t& microjoules) const override;
  // The hottest processor.
  ze_result_t ReadTemperature(double& celsius) const override;
  // The mean of all cores. Why it is not higher, nobody says.
  ze_result_t ReadFrequency(double& megahertz, zes_freq_throttle_reason_flags_t& reasons) const override;

 private:
  const std::string root_;
  std::vector<std::string> energies_;      // microjoules since some point
  std::vector<std::string> temperatures_;  // thousandths of a degree
};

}  // namespace xpud::drivers::cpu
