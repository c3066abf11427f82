// Tasks that any thread posts for one thread, which waits for descriptors. Thread-safe, except for Run.
#pragma once

#include <sys/eventfd.h>

#include <functional>
#include <utility>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

class Inbox {
 public:
  int fd() const { return event_.get(); }  // readable while there are tasks; invalid: there was no descriptor
  void Post(std::function<void()> task) {
    {
      MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    eventfd_write(event_.get(), 1);
  }
  // Runs the tasks. REQUIRES: the one thread.
  void Run() {
    eventfd_t count;
    eventfd_read(event_.get(), &count);
    std::vector<std::function<void()>> tasks;
    {
      MutexLock lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
  }

 private:
  const UniqueFd event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::service
