#include "deploy/agent/core/inventory_watch.h"

#include <gtest/gtest.h>

namespace xpud::agent {
namespace {

// Returns the address of a device of which the daemon says `text`.
std::string AddressOf(const std::string& text) {
  v1::GetStatusResponse status;
  status.add_devices()->set_pci_address(text);
  return InventoryOf(status, {}).devices.at(0).pci_address;
}

TEST(InventoryOf, HasAddressesAsKubernetesWritesThem) {
  EXPECT_EQ(AddressOf("0000:65:00.0"), "0000:65:00.0");
  EXPECT_EQ(AddressOf("0000:C7:1F.7"), "0000:c7:1f.7");
}

TEST(InventoryOf, LeavesOutWhatIsNoAddress) {
  EXPECT_EQ(AddressOf(""), "");  // also of a daemon that is older than the field
  EXPECT_EQ(AddressOf("10000:65:00.0"), "");
  EXPECT_EQ(AddressOf("../../../etc"), "");
}

}  // namespace
}  // namespace xpud::agent
