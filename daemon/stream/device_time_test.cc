#include "daemon/stream/device_time.h"

#include "gtest/gtest.h"

namespace xpud::stream {
namespace {

TEST(DeviceTime, WorkBehindOthersIsChargedFromTheirEnd) {
  DeviceTime time;
  EXPECT_EQ(time.Charge(0, 100), 100u);
  EXPECT_EQ(time.Charge(10, 110), 10u);
  EXPECT_EQ(time.Charge(20, 210), 100u);
  EXPECT_EQ(time.busy_ns(), 210u);
}

TEST(DeviceTime, WhatIsChargedAddsUpToTheTimeThatThereWasWork) {
  DeviceTime time;
  uint64_t charged = 0;
  for (uint64_t at = 10; at < 100; at += 10) charged += time.Charge(at, at + 10);
  charged += time.Charge(0, 105);
  charged += time.Charge(50, 105);
  EXPECT_EQ(charged, 95u);
  EXPECT_EQ(time.busy_ns(), charged);
}

TEST(DeviceTime, IdleTimeIsNobodys) {
  DeviceTime time;
  EXPECT_EQ(time.Charge(0, 10), 10u);
  EXPECT_EQ(time.Charge(1000, 1010), 10u);
  EXPECT_EQ(time.busy_ns(), 20u);
}

}  // namespace
}  // namespace xpud::stream
