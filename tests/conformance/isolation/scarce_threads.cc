// Preloaded into a process, lets it and its children have as many more threads at a time as the file
// $XPUD_TEST_THREADS_LEFT says (thread_limit.h): then pthread_create fails as it does at the limit of a user
// or of a control group. A test cannot use those limits: the kernel does not apply them to root, or the test
// itself would be in the control group.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>

namespace {

using Left = std::atomic<int64_t>;  // followed by the number of threads that were refused

// Mapped when the library is loaded, before the process confines itself. Null without a file.
Left* const threads_left = []() -> Left* {
  const char* const path = getenv("XPUD_TEST_THREADS_LEFT");
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* const page = mmap(nullptr, 2 * sizeof(Left), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? nullptr : static_cast<Left*>(page);
}();

struct Start {
  void* (*start)(void*);
  void* argument;
};

void* Run(void* start) {
  const Start copy = *static_cast<Start*>(start);
  delete static_cast<Start*>(start);
  void* const result = copy.start(copy.argument);
  threads_left->fetch_add(1);
  return result;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*start)(void*), void* argument) {
  static const auto next = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == nullptr) return next(thread, attributes, start, argument);
  if (threads_left->fetch_sub(1) <= 0) {
    threads_left->fetch_add(1);
    threads_left[1].fetch_add(1);
    return EAGAIN;
  }
  auto* const counted = new (std::nothrow) Start{start, argument};
  return counted == nullptr ? EAGAIN : next(thread, attributes, Run, counted);
}
