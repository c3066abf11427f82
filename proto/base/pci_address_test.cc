#include "proto/base/pci_address.h"

#include <gtest/gtest.h>

namespace xpud {
namespace {

TEST(PciAddress, IsWrittenAsTheKernelWritesItAndReadAgain) {
  const PciAddress address = PciAddress::Of(0x1a2b, 0xc7, 0x1f, 7);
  EXPECT_EQ(address.Text(), "1a2b:c7:1f.7");
  EXPECT_EQ(PciAddress::Of(0, 0x17, 0, 0).Text(), "0000:17:00.0");
  EXPECT_EQ(PciAddress::Parse("1a2b:c7:1f.7"), address);
  EXPECT_EQ(PciAddress::Parse("1A2B:C7:1F.7"), address);
  EXPECT_EQ(PciAddress::OfBits(address.bits()), address);
  EXPECT_EQ(address.domain(), 0x1a2bU);
  EXPECT_EQ(address.bus(), 0xc7U);
  EXPECT_EQ(address.device(), 0x1fU);
  EXPECT_EQ(address.function(), 7U);
}

TEST(PciAddress, NumbersBeyondPciGiveAnUnknownOne) {
  EXPECT_TRUE(PciAddress::Of(0xffff, 0xff, 0x1f, 7).is_known());
  EXPECT_FALSE(PciAddress::Of(0x10000, 0x17, 0, 0).is_known());
  EXPECT_FALSE(PciAddress::Of(0, 0x100, 0, 0).is_known());
  EXPECT_FALSE(PciAddress::Of(0, 0x17, 0x20, 0).is_known());
  EXPECT_FALSE(PciAddress::Of(0, 0x17, 0, 8).is_known());
  EXPECT_FALSE(PciAddress::Of(UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX).is_known());
}

TEST(PciAddress, AHostBridgeIsNoDevice) {
  EXPECT_FALSE(PciAddress::Of(0, 0, 0, 0).is_known());
  EXPECT_FALSE(PciAddress::OfBits(0).is_known());
  EXPECT_EQ(PciAddress().Text(), "");
}

TEST(PciAddress, OtherTextsGiveAnUnknownOne) {
  for (const char* text :
       {"", "0000:17:00", "0000:17:00.0 ", " 0000:17:00.0", "00000:17:00.0", "0000:17:00.8", "0000:17:20.0",
        "0000:1g:00.0", "0000-17-00.0", "../../etc/pas", "0x00:17:00.0", "0000:17:00.\xff"})
    EXPECT_FALSE(PciAddress::Parse(text).is_known()) << text;
}

}  // namespace
}  // namespace xpud
