#include "kernels/compiler/background_thread.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace xpud::kernels {
namespace {

TEST(BackgroundThread, WorkMayGiveItMoreAlsoWhileItEnds) {
  std::atomic<bool> has_begun{false};
  std::atomic<int> later{0};
  {
    BackgroundThread thread("test");
    ASSERT_TRUE(thread.Start().ok());
    thread.Run([&] {
      thread.Run([&] { ++later; });
      has_begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the destructor waits by now
      thread.Run([&] { later += 100; });
    });
    while (!has_begun) std::this_thread::yield();
  }
  EXPECT_EQ(later, 0) << "what had not begun is dropped";
}

TEST(BackgroundThread, WaitsForAllThatWasGiven) {
  BackgroundThread thread("test");
  ASSERT_TRUE(thread.Start().ok());
  std::atomic<int> done{0};
  for (int i = 0; i < 10; ++i) {
    thread.Run([&] {
      ++done;
      thread.Run([&] { ++done; });
    });
  }
  thread.Wait();
  EXPECT_EQ(done, 20);
}

}  // namespace
}  // namespace xpud::kernels
