#include "drivers/cpu/sensors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace xpud::drivers::cpu {
namespace {

// Files as the kernel of a machine would show them.
class CpuSensorsTest : public testing::Test {
 protected:
  CpuSensorsTest() {
    std::string name = "/tmp/xpud-sensors-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~CpuSensorsTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(CpuSensorsTest, AMachineWithoutSensorsOffersNone) {
  const CpuSensors sensors(root_);
  uint64_t number = 0, other = 0;
  double value = 0;
  zes_freq_throttle_reason_flags_t reasons = 0;
  EXPECT_EQ(sensors.ReadMemory(number, other), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  EXPECT_EQ(sensors.ReadEnergy(number), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  EXPECT_EQ(sensors.ReadTemperature(value), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  EXPECT_EQ(sensors.ReadFrequency(value, reasons), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
}

TEST_F(CpuSensorsTest, WhatTheKernelShowsIsRead) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    700 kB\n");
  Write("/proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 1000.5\n\nprocessor\t: 1\ncpu MHz\t\t: 2000.5\n");
  Write("/sys/class/hwmon/hwmon0/name", "nvme\n");
  Write("/sys/class/hwmon/hwmon0/temp1_input", "90000\n");
  Write("/sys/class/hwmon/hwmon1/name", "coretemp\n");
  Write("/sys/class/hwmon/hwmon1/temp1_input", "41500\n");
  Write("/sys/class/hwmon/hwmon2/name", "coretemp\n");
  Write("/sys/class/hwmon/hwmon2/temp1_input", "48000\n");
  Write("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
  Write("/sys/class/powercap/intel-rapl:0/energy_uj", "123\n");
  Write("/sys/class/powercap/intel-rapl:0:0/name", "core\n");
  Write("/sys/class/powercap/intel-rapl:0:0/energy_uj", "100\n");
  Write("/sys/class/powercap/intel-rapl:1/name", "package-1\n");
  Write("/sys/class/powercap/intel-rapl:1/energy_uj", "1000\n");
  const CpuSensors sensors(root_);
  uint64_t size = 0, free = 0, energy = 0;
  double celsius = 0, megahertz = 0;
  zes_freq_throttle_reason_flags_t reasons = 1;
  ASSERT_EQ(sensors.ReadMemory(size, free), ZE_RESULT_SUCCESS);
  EXPECT_EQ(size, 1000u * 1024);
  EXPECT_EQ(free, 700u * 1024);
  ASSERT_EQ(sensors.ReadEnergy(energy), ZE_RESULT_SUCCESS);
  EXPECT_EQ(energy, 1123u) << "both packages, and no part of one again";
  ASSERT_EQ(sensors.ReadTemperature(celsius), ZE_RESULT_SUCCESS);
  EXPECT_EQ(celsius, 48);
  ASSERT_EQ(sensors.ReadFrequency(megahertz, reasons), ZE_RESULT_SUCCESS);
  EXPECT_EQ(megahertz, 1500.5);
  EXPECT_EQ(reasons, 0u);
}

TEST_F(CpuSensorsTest, EnergyThatThisUserMayNotReadSaysSo) {
  Write("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
  const CpuSensors sensors(root_);
  uint64_t energy = 0;
  EXPECT_EQ(sensors.ReadEnergy(energy), ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS);
}

}  // namespace
}  // namespace xpud::drivers::cpu
