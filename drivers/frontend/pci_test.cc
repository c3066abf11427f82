#include "drivers/frontend/pci.h"

#include <gtest/gtest.h>

#include <vector>

namespace xpud::drivers {
namespace {

// Returns the numbers of an address, or nothing if it is refused.
std::vector<uint32_t> Read(const char* text) {
  ze_pci_address_ext_t address = {9, 9, 9, 9};
  const bool read = ReadPciAddress(text, address);
  if (!read) EXPECT_EQ(address.domain + address.bus + address.device + address.function, 36u) << text;
  return read ? std::vector<uint32_t>{address.domain, address.bus, address.device, address.function}
              : std::vector<uint32_t>{};
}

TEST(ReadPciAddressTest, ReadsWhatCudaWrites) {
  EXPECT_EQ(Read("0000:17:00.0"), (std::vector<uint32_t>{0, 0x17, 0, 0}));
  EXPECT_EQ(Read("0001:C7:1F.7"), (std::vector<uint32_t>{1, 0xc7, 0x1f, 7}));
  EXPECT_EQ(Read("00010000:c7:1f.7"), (std::vector<uint32_t>{0x10000, 0xc7, 0x1f, 7}));
  EXPECT_EQ(Read("ffffffff:ffffffff:0.f"), (std::vector<uint32_t>{UINT32_MAX, UINT32_MAX, 0, 15}));
}

TEST(ReadPciAddressTest, RefusesOtherTexts) {
  for (const char* text : {"", "none", "0000:17:00", "0000:17:00.", "0000:17:00.0 ", " 0000:17:00.0",
                           "0000:17:00:0", "-001:17:00.0", "0x00:17:00.0", "100000000:17:00.0", ":17:00.0"})
    EXPECT_TRUE(Read(text).empty()) << text;
}

}  // namespace
}  // namespace xpud::drivers
