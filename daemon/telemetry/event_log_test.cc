#include "daemon/telemetry/event_log.h"

#include <thread>

#include "gtest/gtest.h"

namespace xpud::telemetry {
namespace {

using std::chrono::seconds;

TEST(EventLog, KeepsTheLatestAndTheNumbersShowWhatIsGone) {
  EventLog log;
  for (size_t i = 0; i < EventLog::kMax + 10; ++i) log.Add({.kind = "drained"});
  const EventLog::Events all = log.After(0, 10'000);
  ASSERT_EQ(all.size(), EventLog::kMax);
  EXPECT_EQ(all.front()->sequence, 11u);
  EXPECT_EQ(all.back()->sequence, EventLog::kMax + 10);
}

TEST(EventLog, IsReadInPieces) {
  EventLog log;
  for (int i = 0; i < 5; ++i) log.Add({.kind = "drained"});
  EXPECT_EQ(log.After(0, 3).back()->sequence, 3u);
  EXPECT_EQ(log.After(3, 3).size(), 2u);
  EXPECT_TRUE(log.After(5, 3).empty());
  EXPECT_TRUE(log.After(~uint64_t{0}, 3).empty());
}

TEST(EventLog, TextsAreCutAndPrintable) {
  EventLog log;
  log.Add({.kind = "session_opened",
           .session = Event::Session{.name = std::string(1000, 'a')},
           .text = "\x1b[31m" + std::string(1000, 'b')});
  const auto event = log.After(0, 1).at(0);
  EXPECT_EQ(event->session->name.size(), EventLog::kMaxText);
  EXPECT_EQ(event->text.size(), EventLog::kMaxText);
  EXPECT_EQ(event->text.substr(0, 2), "?[");
}

TEST(EventLog, AReaderIsWokenByTheNextEventAndByTheEnd) {
  EventLog log;
  const auto soon = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  const auto began = std::chrono::steady_clock::now();
  std::thread adds([&] {
    soon();
    log.Add({.kind = "drained"});
  });
  EXPECT_EQ(log.AwaitAfter(0, 8, seconds(20)).size(), 1u);
  adds.join();
  std::thread ends([&] {
    soon();
    log.End();
  });
  EXPECT_TRUE(log.AwaitAfter(1, 8, seconds(20)).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(15));
  ends.join();
  EXPECT_TRUE(log.ended());
}

TEST(EventLog, ManyThreadsAddAndReadWithoutLosingAny) {
  EventLog log;
  constexpr uint64_t kEach = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kEach; ++i) log.Add({.kind = "drained"});
    });
  }
  uint64_t seen = 0;
  while (seen < 4 * kEach) {
    for (const auto& event : log.AwaitAfter(seen, 16, seconds(20))) ASSERT_EQ(event->sequence, ++seen);
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace xpud::telemetry
