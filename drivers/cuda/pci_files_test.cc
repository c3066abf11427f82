#include "drivers/cuda/pci_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace xpud::drivers::cuda {
namespace {

class PciFilesTest : public ::testing::Test {
 protected:
  PciFilesTest() { std::filesystem::create_directories(folder_); }
  ~PciFilesTest() override { std::filesystem::remove_all(folder_); }

  void Write(const char* name, const char* text) const {
    std::ofstream(folder_ + "/" + name) << text << '\n';
  }

  const std::string folder_ = ::testing::TempDir() + "pci_files_test." +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(PciFilesTest, FolderIsNamedAsTheKernelNamesIt) {
  EXPECT_EQ(SysfsFolder({0, 0x17, 0, 0}), "/sys/bus/pci/devices/0000:17:00.0");
  EXPECT_EQ(SysfsFolder({0x10000, 0xc7, 0x1f, 7}), "/sys/bus/pci/devices/10000:c7:1f.7");
  EXPECT_EQ(SysfsFolder({UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}),
            "/sys/bus/pci/devices/ffffffff:ffffffff:ffffffff.ffffffff");
}

TEST_F(PciFilesTest, SpeedIsThatOfAllLanes) {
  Write("device", "0x2335");
  Write("max_link_speed", "32.0 GT/s PCIe");
  Write("max_link_width", "16");
  EXPECT_EQ(ReadPciDeviceId(folder_), 0x2335U);
  const ze_pci_speed_ext_t speed = ReadPciSpeed(folder_);
  EXPECT_EQ(speed.genVersion, 5);
  EXPECT_EQ(speed.width, 16);
  EXPECT_EQ(speed.maxBandwidth, 63'015'384'608);
  Write("max_link_speed", "2.5 GT/s PCIe");
  Write("max_link_width", "1");
  EXPECT_EQ(ReadPciSpeed(folder_).maxBandwidth, 250'000'000);
}

TEST_F(PciFilesTest, WhatIsNotSaidIsUnknown) {
  const auto expect = [&](int generation, int width) {
    const ze_pci_speed_ext_t speed = ReadPciSpeed(folder_);
    EXPECT_EQ(speed.genVersion, generation);
    EXPECT_EQ(speed.width, width);
    EXPECT_EQ(speed.maxBandwidth, -1);
  };
  expect(-1, -1);
  EXPECT_EQ(ReadPciDeviceId(folder_), 0U);
  Write("max_link_speed", "Unknown");
  Write("max_link_width", "255");  // the kernel's word for unknown
  expect(-1, -1);
  Write("max_link_speed", "16.0 GT/s PCIe");
  expect(4, -1);
  Write("max_link_speed", "1e300 GT/s");
  Write("max_link_width", "8");
  expect(-1, 8);
}

}  // namespace
}  // namespace xpud::drivers::cuda
