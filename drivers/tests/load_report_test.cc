// On a machine whose CUDA cannot be used, the other devices work, and the report gives the reason. Through
// Debian's loader.
#include <cstdlib>

#include "drivers/tests/driver_under_test.h"
#include "gmock/gmock.h"

namespace xpud::drivers {
namespace {

class LoadReportTest : public DriverTest {
 protected:
  void SetUp() override {
    setenv("XPUD_CUDA_LIBRARY", XPUD_FAKE_CUDA_LIBRARY, 1);
    setenv("XPUD_FAKE_CUDA", "old", 1);
    DriverTest::SetUp();
  }
};

TEST_P(LoadReportTest, OtherDevicesGoOn) {
  EXPECT_EQ(Drivers().size(), 1u);
  EXPECT_EQ(zeDeviceGetStatus(device_), ZE_RESULT_SUCCESS);
  EXPECT_THAT(LoadReport(), ::testing::StartsWith("cuda: "));
  EXPECT_THAT(LoadReport(), ::testing::HasSubstr("at least 12.4 is needed"));
  EXPECT_THAT(LoadReport(), ::testing::Not(::testing::HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(On, LoadReportTest, ::testing::Values("cpu"), NameOf);

}  // namespace
}  // namespace xpud::drivers
