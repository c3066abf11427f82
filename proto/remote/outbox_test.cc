#include "proto/remote/outbox.h"

#include <string>

#include "gtest/gtest.h"

namespace xpud::remote {
namespace {

ServerFrame FrameOf(size_t bytes) {
  ServerFrame frame;
  frame.payload.emplace_back(std::string(bytes, 'x'));
  return frame;
}

// Sends until nothing more may be sent. Returns how many frames are kept.
uint64_t Fill(Outbox<v1::ServerHead>& outbox, size_t bytes) {
  while (!outbox.IsFull()) {
    ServerFrame frame = FrameOf(bytes);
    outbox.Number(frame);
  }
  return outbox.Kept().size();
}

TEST(Outbox, KeepsSoManyFramesUntilTheyAreAcknowledged) {
  Outbox<v1::ServerHead> outbox(true);
  EXPECT_EQ(Fill(outbox, 100), 2048u);
  EXPECT_TRUE(outbox.Acknowledge(48));
  EXPECT_FALSE(outbox.IsFull());
  EXPECT_EQ(outbox.Kept().size(), 2000u);
  EXPECT_EQ(outbox.Kept().front().head.number(), 49u);
  EXPECT_FALSE(outbox.Acknowledge(2049)) << "it was never sent";
}

TEST(Outbox, KeepsSoManyBytesUntilTheyAreAcknowledged) {
  Outbox<v1::ServerHead> outbox(true);
  constexpr size_t kPayload = 16 << 20;
  EXPECT_EQ(Fill(outbox, kPayload), 4u);  // 64 MiB
  EXPECT_TRUE(outbox.Acknowledge(1));
  EXPECT_FALSE(outbox.IsFull());
  Outbox<v1::ServerHead> forgets(false);
  for (int i = 0; i < 8; ++i) {
    ServerFrame frame = FrameOf(kPayload);
    forgets.Number(frame);
  }
  EXPECT_TRUE(forgets.Kept().empty());
  EXPECT_FALSE(forgets.IsFull());
}

}  // namespace
}  // namespace xpud::remote
