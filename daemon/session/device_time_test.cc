#include "daemon/session/device_time.h"

#include "gtest/gtest.h"

namespace xpud::session {
namespace {

TEST(DeviceTime, WorkBehindOthersIsChargedFromTheirEnd) {
  DeviceTime time;
  EXPECT_EQ(time.Charge(1, 0, 0, 100), 100u);
  EXPECT_EQ(time.Charge(2, 10, 10, 110), 10u);    // waited for the first
  EXPECT_EQ(time.Charge(1, 20, 100, 210), 100u);  // and this one for the second
  EXPECT_EQ(time.Charge(2, 30, 110, 220), 10u);
  EXPECT_EQ(time.busy_ns(), 220u);
}

TEST(DeviceTime, ShortWorkBesideLongWorkIsChargedToBoth) {
  DeviceTime time;
  for (uint64_t at = 10; at < 100; at += 10) EXPECT_EQ(time.Charge(2, at, at, at + 10), 10u);
  EXPECT_EQ(time.Charge(1, 0, 0, 100), 100u);
  EXPECT_EQ(time.busy_ns(), 100u);
}

TEST(DeviceTime, TimeIsCountedOnceHoweverMuchWorkThereIs) {
  DeviceTime time;
  time.ChargeAll(50, 60);
  time.ChargeAll(70, 80);
  EXPECT_EQ(time.busy_ns(), 20u);
  time.ChargeAll(55, 75);
  EXPECT_EQ(time.busy_ns(), 30u);
  time.ChargeAll(0, 100);
  EXPECT_EQ(time.busy_ns(), 100u);
}

TEST(DeviceTime, IdleTimeIsNobodys) {
  DeviceTime time;
  EXPECT_EQ(time.Charge(1, 0, 0, 10), 10u);
  EXPECT_EQ(time.ChargeAll(1000, 1010), 10u);
  EXPECT_EQ(time.busy_ns(), 20u);
}

}  // namespace
}  // namespace xpud::session
