#include "deploy/agent/kubernetes/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xpud::agent::kubernetes {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

SlotSet SlotsOf(uint32_t device, uint32_t first, uint32_t count) {
  SlotSet slots;
  for (uint32_t i = 0; i < count; ++i) slots.insert({device, first + i});
  return slots;
}

SlotSet operator+(SlotSet left, const SlotSet& right) {
  left.insert(right.begin(), right.end());
  return left;
}

Inventory TwoDevices() {
  Inventory inventory;
  inventory.devices.resize(2);
  for (uint32_t i = 0; i < 2; ++i) {
    inventory.devices[i].index = i;
    inventory.devices[i].share = 100;
    inventory.devices[i].memory_bytes = (1000 + 24 * i) * kMiB;
  }
  return inventory;
}

TEST(Slots, IdsAreReadBackAndNothingElseIs) {
  EXPECT_EQ(SlotId({0, 3}), "xpud-0-slot-3");
  for (const Slot& slot : {Slot{0, 0}, Slot{12, 99}, Slot{4294967295, 0}}) {
    EXPECT_EQ(ReadSlotId(SlotId(slot)), slot);
    EXPECT_LE(SlotId(slot).size(), 63);
  }
  for (const char* id : {"", "xpud-0", "xpud-0-slot-", "xpud--slot-1", "xpud-0-slot-100", "xpud-0-slot-01",
                         "xpud-0-slot--1", "xpud-0-slot-1 ", "XPUD-0-slot-1", "xpud-4294967296-slot-1"})
    EXPECT_EQ(ReadSlotId(id), std::nullopt) << id;
}

TEST(Slots, LabelsAreShortAndReadBack) {
  EXPECT_EQ(SlotsText(SlotsOf(0, 0, 4) + SlotsOf(0, 7, 1) + SlotsOf(1, 2, 2)), "0:0-3,7;1:2-3");
  for (const SlotSet& slots : {SlotsOf(0, 0, 1), SlotsOf(3, 0, 100), SlotsOf(0, 1, 2) + SlotsOf(10, 5, 2)})
    EXPECT_EQ(ReadSlotsText(SlotsText(slots)), slots);
  SlotSet scattered;
  for (uint32_t i = 0; i < 100; i += 2) scattered.insert({0, i});
  EXPECT_LE(SlotsText(scattered).size(), 253);
  for (const char* text : {"", "0", "0:", ":1", "0:1-", "0:3-1", "0:1,1", "0:1,2", "0:0-4294967295", "0:100",
                           "1:1;0:1", "0:1;", "0:1:2", "0:1-2-3", "0:x"})
    EXPECT_EQ(ReadSlotsText(text), std::nullopt) << text;
}

TEST(Slots, APartIsProportional) {
  const auto claim = PartOf(SlotsOf(0, 4, 3), TwoDevices(), 10);
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_THAT(claim->devices(), ElementsAre(0));
  EXPECT_EQ(claim->weight(), 30);
  EXPECT_EQ(claim->time_least(), 2850);
  EXPECT_EQ(claim->memory_least_bytes(), 300 * kMiB);
  EXPECT_EQ(claim->memory_most_bytes(), 300 * kMiB);

  const auto third = PartOf(SlotsOf(1, 0, 1), TwoDevices(), 3);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->weight(), 33);
  EXPECT_EQ(third->memory_least_bytes(), 341 * kMiB) << "1024 / 3, whole MiB";

  const auto whole = PartOf(SlotsOf(0, 0, 1), TwoDevices(), 1);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->time_least(), 9500);
}

TEST(Slots, APartOfTwoDevicesIsWhatTheSmallerHas) {
  const auto claim = PartOf(SlotsOf(0, 0, 5) + SlotsOf(1, 2, 5), TwoDevices(), 10);
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_THAT(claim->devices(), ElementsAre(0, 1));
  EXPECT_EQ(claim->weight(), 50);
  EXPECT_EQ(claim->memory_least_bytes(), 500 * kMiB);
}

TEST(Slots, WhatIsNoPartIsRefusedWithTheReason) {
  const auto message = [](const SlotSet& wanted) {
    return std::string(PartOf(wanted, TwoDevices(), 10).status().message());
  };
  EXPECT_THAT(message({}), HasSubstr("no slot is named"));
  EXPECT_THAT(message(SlotsOf(0, 0, 2) + SlotsOf(1, 0, 1)), HasSubstr("2 slots of xpud-0 and 1 of xpud-1"));
  EXPECT_THAT(message(SlotsOf(0, 10, 1)), HasSubstr("no slot xpud-0-slot-10"));
  EXPECT_THAT(message(SlotsOf(2, 0, 1)), HasSubstr("2 devices of 10 slots"));
  Inventory small = TwoDevices();
  small.devices[0].memory_bytes = 5 * kMiB;
  EXPECT_TRUE(absl::IsResourceExhausted(PartOf(SlotsOf(0, 0, 1), small, 10).status()));
}

TEST(Slots, WhatOthersAreGuaranteedIsNotOffered) {
  Inventory inventory = TwoDevices();
  inventory.devices[1].share = 65;
  for (uint32_t index = 0; index < 10; ++index) {
    EXPECT_TRUE(IsOffered({0, index}, inventory, 10));
    EXPECT_EQ(IsOffered({1, index}, inventory, 10), index < 6);
  }
  EXPECT_TRUE(IsOffered({0, 2}, inventory, 3)) << "three slots are 99 shares";
  inventory.devices[0].unhealthy = "lost";
  EXPECT_FALSE(IsOffered({0, 0}, inventory, 10));
  EXPECT_TRUE(IsOffered({1, 0}, inventory, 10));
  inventory.drained = true;
  EXPECT_FALSE(IsOffered({1, 0}, inventory, 10));
  EXPECT_FALSE(IsOffered({7, 0}, inventory, 10));
}

TEST(Slots, TheFullestDeviceThatSufficesIsPreferred) {
  const SlotSet free = SlotsOf(0, 0, 10) + SlotsOf(1, 5, 3) + SlotsOf(2, 0, 4);
  EXPECT_EQ(PreferredSlots(free, {}, 2), SlotsOf(1, 5, 2));
  EXPECT_EQ(PreferredSlots(free, {}, 4), SlotsOf(2, 0, 4));
  EXPECT_EQ(PreferredSlots(free, {}, 5), SlotsOf(0, 0, 5));
  EXPECT_EQ(PreferredSlots(SlotsOf(0, 0, 3) + SlotsOf(1, 0, 3), {}, 3), SlotsOf(0, 0, 3));
}

TEST(Slots, RequiredSlotsAreAmongThePreferred) {
  const SlotSet free = SlotsOf(0, 0, 10) + SlotsOf(1, 5, 3);
  EXPECT_EQ(PreferredSlots(free, SlotsOf(0, 7, 1), 2), SlotsOf(0, 7, 1) + SlotsOf(0, 0, 1));
  EXPECT_EQ(PreferredSlots({}, SlotsOf(0, 7, 1), 1), SlotsOf(0, 7, 1));
  EXPECT_EQ(PreferredSlots(free, SlotsOf(0, 7, 1) + SlotsOf(1, 6, 1), 4),
            SlotsOf(0, 0, 1) + SlotsOf(0, 7, 1) + SlotsOf(1, 5, 2));
}

TEST(Slots, ALargeRequestIsSpreadEqually) {
  const SlotSet free = SlotsOf(0, 0, 10) + SlotsOf(1, 0, 6) + SlotsOf(2, 0, 8);
  EXPECT_EQ(PreferredSlots(free, {}, 12), SlotsOf(1, 0, 6) + SlotsOf(2, 0, 6));
  EXPECT_EQ(PreferredSlots(free, {}, 18), SlotsOf(0, 0, 6) + SlotsOf(1, 0, 6) + SlotsOf(2, 0, 6));
  EXPECT_EQ(PreferredSlots(free, {}, 23).size(), 23) << "they cannot be equally many; Allocate says so";
  EXPECT_EQ(PreferredSlots(free, {}, 100), free);
  EXPECT_EQ(PreferredSlots(free, {}, 0), SlotSet());
}

}  // namespace
}  // namespace xpud::agent::kubernetes
