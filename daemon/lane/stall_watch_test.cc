#include "daemon/lane/stall_watch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/ops/op_table.h"

namespace xpud::lane {
namespace {

using WaitState = session::DeviceSession::WaitState;
using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;

class StallWatchTest : public ::testing::Test {
 protected:
  // Looks at session 7 at a time in seconds.
  void LookAt(uint64_t seconds, const WaitState& state) {
    watch_.Look({.pid = 11, .tenant = {1000}, .name = "python"}, 7, state, seconds * kSecond,
                [&] { return others_; });
    watch_.Looked(seconds * kSecond);
  }
  // The events since the last call.
  std::vector<telemetry::Event> Events() {
    std::vector<telemetry::Event> events;
    for (const auto& event : log_.After(seen_, 100)) {
      events.push_back(*event);
      seen_ = event->sequence;
    }
    return events;
  }

  telemetry::EventLog log_;
  uint64_t seen_ = 0;
  std::string others_;
  StallWatch watch_{10 * kSecond, 2, log_};
};

TEST_F(StallWatchTest, NamesTheCauseOnce) {
  const WaitState state{.since_ns = 100 * kSecond,
                        .stall = records::Stall::kCompiling,
                        .has_commands = true,
                        .row = &ops::RowOf("add.Tensor")};
  LookAt(109, state);
  EXPECT_TRUE(Events().empty());
  LookAt(111, state);
  const auto events = Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_STREQ(events[0].kind, "stalled");
  EXPECT_EQ(events[0].session->id, 7u);
  EXPECT_EQ(events[0].device, 2u);
  EXPECT_EQ(events[0].text,
            "nothing of it has run or ended for 11.0 s: the next one waits for compiling (add.Tensor)");
  LookAt(120, state);
  EXPECT_TRUE(Events().empty());
}

TEST_F(StallWatchTest, NamesOthersAndCounts) {
  others_ = "session 9 (train.py, uid:1)";
  LookAt(120, {.since_ns = 100 * kSecond, .has_commands = true});
  EXPECT_EQ(Events().at(0).text,
            "nothing of it has run or ended for 20.0 s: the next one waits for its turn; others with work: "
            "session 9 (train.py, uid:1)");
  LookAt(121, {.since_ns = 100 * kSecond, .has_commands = true});
  LookAt(140, {.since_ns = 125 * kSecond, .has_commands = true});
  LookAt(160, {.since_ns = 145 * kSecond, .device_works = true});
  EXPECT_EQ(watch_.counts(), (std::map<std::string, uint64_t>{{"its turn", 2}, {"device works", 1}}));
}

TEST_F(StallWatchTest, SaysThatItGoesOn) {
  LookAt(120, {.since_ns = 100 * kSecond, .device_works = true});
  EXPECT_THAT(Events().at(0).text, HasSubstr("the device works on its commands"));
  LookAt(125, {});
  const auto events = Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_STREQ(events[0].kind, "resumed");
  EXPECT_EQ(events[0].text, "after 25.0 s");
  LookAt(130, {});
  EXPECT_TRUE(Events().empty());
}

TEST_F(StallWatchTest, ANewStallIsAnotherOne) {
  LookAt(120, {.since_ns = 100 * kSecond, .has_commands = true});
  LookAt(140, {.since_ns = 125 * kSecond, .has_commands = true});
  const auto events = Events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_STREQ(events[1].kind, "resumed");
  EXPECT_STREQ(events[2].kind, "stalled");
}

TEST_F(StallWatchTest, ForgetsSessionsThatEnded) {
  LookAt(120, {.since_ns = 100 * kSecond, .has_commands = true});
  Events();
  watch_.Looked(121 * kSecond);
  LookAt(122, {});
  EXPECT_TRUE(Events().empty());
}

TEST_F(StallWatchTest, ZeroIsNever) {
  EXPECT_FALSE(StallWatch(0, 0, log_).IsDue(UINT64_MAX));
  EXPECT_TRUE(watch_.IsDue(1));
  watch_.Looked(kSecond);
  EXPECT_FALSE(watch_.IsDue(3 * kSecond));
  EXPECT_TRUE(watch_.IsDue(4 * kSecond));
}

}  // namespace
}  // namespace xpud::lane
