// Two threads add to one counter, each under a lock of its own: ThreadSanitizer must report it. Written with
// our own locks, so that it also shows that they are visible to the tool.
#include <cstdio>
#include <thread>

#include "proto/base/mutex.h"

namespace {

long counter = 0;

void Count(xpud::Mutex& mutex) {
  for (int i = 0; i < 100000; ++i) {
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
