// Two threads add to one counter, each under a lock of its own: ThreadSanitizer must report it. Written with
// our own locks, so that it also shows that they are visible to the tool.
#include <atomic>
#include <cstdio>
#include <thread>

#include "proto/base/mutex.h"

namespace {

long counter = 0;
std::atomic<int> there{0};

// Both at once: of threads that run one after the other, the tool may have forgotten what the first one did.
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
