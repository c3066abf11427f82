#include "daemon/executor/process/private_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace xpud::executor::process {
namespace {

// Both ends are in this process.
class PrivateRingTest : public ::testing::Test {
 protected:
  PrivateRing daemon_ = *PrivateRing::Create();
  PrivateRing executor_ = *PrivateRing::Open(UniqueFd(fcntl(daemon_.fd().get(), F_DUPFD_CLOEXEC, 0)),
                                             UniqueFd(fcntl(daemon_.doorbell().get(), F_DUPFD_CLOEXEC, 0)));

  bool Send(uint32_t number, size_t bytes = sizeof(Message)) {
    auto* const message = reinterpret_cast<Message*>(daemon_.Reserve(bytes));
    if (message == nullptr) return false;
    *message = {};
    message->bytes = static_cast<uint32_t>(bytes);
    message->kernel = number;
    daemon_.Commit(bytes);
    return true;
  }
};

TEST_F(PrivateRingTest, MessagesArriveInOrderAroundTheEnd) {
  // Does not divide the ring size, so messages cross the ring's end.
  constexpr size_t kBytes = kMessageAlignment * 1001;
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(Send(i, kBytes));
    const Message* const message = executor_.Next();
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(message->kernel, i);
    EXPECT_EQ(message->bytes, kBytes);
    executor_.Take(message->bytes);
  }
  EXPECT_EQ(executor_.Next(), nullptr);
}

TEST_F(PrivateRingTest, AFullRingTakesNoMoreUntilSomethingIsTaken) {
  constexpr size_t kHalf = kRingBytes / 2;
  EXPECT_TRUE(Send(1, kHalf));
  EXPECT_TRUE(Send(2, kHalf));
  EXPECT_FALSE(Send(3));
  EXPECT_FALSE(daemon_.BacklogIsBelow(kRingBytes));
  EXPECT_TRUE(daemon_.BacklogIsBelow(kRingBytes + 1));
  executor_.Take(executor_.Next()->bytes);
  EXPECT_TRUE(Send(3));
}

TEST_F(PrivateRingTest, ASleeperWakesForAMessage) {
  std::thread sleeper([&] {
    while (executor_.Next() == nullptr) executor_.Sleep(-1);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Send(1);
  daemon_.Wake();
  sleeper.join();
  EXPECT_EQ(executor_.Next()->kernel, 1u);
}

}  // namespace
}  // namespace xpud::executor::process
