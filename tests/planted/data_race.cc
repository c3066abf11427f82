// Two threads add to one counter, each under a lock of its own: ThreadSanitizer must report it. The locks are
// ours, so this also shows that the tool understands them.
#include <atomic>
#include <cstdio>
#include <thread>

#include "proto/base/mutex.h"

namespace {

long counter = 0;
std::atomic<int> there{0};

// Both threads must run at once: if one ran after the other, the tool might have forgotten the first one's
// accesses.
void Count(xpud::Mutex& mutex) {
  ++there;
  while (there != 2) std::this_thread::yield();
  for (int i = 0; i < 100000; ++i) {
    if (i % 100 == 0) std::this_thread::yield();
    xpud::MutexLock lock(mutex);
    ++counter;
  }
}

}  // namespace

int main() {
  xpud::Mutex first, second;
  std::thread other([&] { Count(first); });
  Count(second);
  other.join();
  std::printf("%ld\n", counter);
  return 0;
}
