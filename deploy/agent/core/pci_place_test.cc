#include "deploy/agent/core/pci_place.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace xpud::agent {
namespace {

const PciAddress kAddress = PciAddress::Of(0, 0x65, 0, 0);

class PciPlaceTest : public ::testing::Test {
 protected:
  PciPlaceTest() { std::filesystem::create_directories(sysfs_ + "/bus/pci/devices"); }
  ~PciPlaceTest() override { std::filesystem::remove_all(sysfs_); }

  // Makes the device's folder below `parents`, and its link.
  void Add(const std::string& parents, const char* numa_node) const {
    const std::string folder = parents + "/0000:65:00.0";
    std::filesystem::create_directories(sysfs_ + "/devices/" + folder);
    if (numa_node != nullptr)
      std::ofstream(sysfs_ + "/devices/" + folder + "/numa_node") << numa_node << '\n';
    std::filesystem::create_symlink("../../../devices/" + folder, sysfs_ + "/bus/pci/devices/0000:65:00.0");
  }
  PciPlace Read() const { return ReadPciPlace(sysfs_, kAddress); }

  const std::string sysfs_ = ::testing::TempDir() + "pci_place_test." +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(PciPlaceTest, RootIsTheFirstOnTheWay) {
  Add("pci0000:64/0000:64:01.0", "1");
  EXPECT_EQ(Read().root, "pci0000:64");
  EXPECT_EQ(Read().numa_node, 1U);
}

TEST_F(PciPlaceTest, RootMayBeBelowAPlatformDevice) {
  Add("platform/40000000.pcie/pci0000:00/0000:00:00.0", "0");
  EXPECT_EQ(Read().root, "pci0000:00");
  EXPECT_EQ(Read().numa_node, 0U);
}

TEST_F(PciPlaceTest, MachineWithoutNumaNodesHasNone) {
  Add("pci0000:64", "-1");
  EXPECT_EQ(Read().root, "pci0000:64");
  EXPECT_FALSE(Read().numa_node);
}

TEST_F(PciPlaceTest, AbsurdFilesSayNothing) {
  Add("pci10000:00", "99999999999999999999");
  EXPECT_EQ(Read().root, "");
  EXPECT_FALSE(Read().numa_node);
}

TEST_F(PciPlaceTest, NothingIsKnownOfADeviceThatIsNotThere) {
  EXPECT_EQ(Read().root, "");
  EXPECT_FALSE(Read().numa_node);
  Add("pci0000:64", nullptr);
  EXPECT_FALSE(Read().numa_node);
  EXPECT_EQ(ReadPciPlace(sysfs_, PciAddress()).root, "");
}

}  // namespace
}  // namespace xpud::agent
