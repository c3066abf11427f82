#include "sdk/client/spin_mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace xpud {
namespace {

TEST(SpinMutex, OneThreadAtATimeIsInside) {
  SpinMutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        SpinLock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 80000);
}

}  // namespace
}  // namespace xpud
