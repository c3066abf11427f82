// Limits the threads that processes started by this test may start (scarce_threads.cc). Header only.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/daemon_process.h"

namespace xpud::isolation {

class ThreadLimit {
 public:
  // From now on, processes that this one starts are limited; first to as many threads as they like.
  ThreadLimit() {
    char path[] = "/tmp/xpud-threads-XXXXXX";
    const int fd = mkstemp(path);
    EXPECT_EQ(ftruncate(fd, kBytes), 0);
    left_ =
        static_cast<std::atomic<int64_t>*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    path_ = path;
    Remove();
    const auto library =
        std::filesystem::path(e2e::DaemonBinary()).parent_path() / "../lib/libscarce_threads.so";
    EXPECT_TRUE(std::filesystem::exists(library));
    setenv("XPUD_TEST_THREADS_LEFT", path, 1);
    setenv("LD_PRELOAD", library.c_str(), 1);
  }
  ~ThreadLimit() {
    StopInheriting();
    unlink(path_.c_str());
    munmap(left_, kBytes);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

  // Processes that this one starts later are not limited.
  static void StopInheriting() {
    unsetenv("LD_PRELOAD");
    unsetenv("XPUD_TEST_THREADS_LEFT");
  }
  void Set(int64_t threads) {
    left_[0].store(threads);
    left_[1].store(0);
  }
  void Remove() { Set(INT64_MAX / 2); }
  // Whether a thread was refused since Set.
  bool WasReached() const { return left_[1].load() > 0; }

 private:
  static constexpr size_t kBytes = 2 * sizeof(std::atomic<int64_t>);

  std::string path_;
  std::atomic<int64_t>* left_ = nullptr;  // how many are left, and how many were refused
};

}  // namespace xpud::isolation
