#include "proto/base/start_thread.h"

#include <pthread.h>

#include <latch>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace xpud {
namespace {

absl::Status NoThread(const std::string& what, const std::system_error& error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot start ", what, ": ", error.code().message(),
                   "; raise the limit of threads: ulimit -u of this user, or the pids limit of the control "
                   "group (TasksMax= of a systemd unit, --pids-limit of a container)"));
}

}  // namespace

absl::StatusOr<std::thread> StartThread(const std::string& name, std::function<void()> body) try {
  return std::thread([name, body = std::move(body)] {
    pthread_setname_np(pthread_self(), name.c_str());
    body();
  });
} catch (const std::system_error& error) {
  return NoThread(absl::StrCat("the thread ", name), error);
}

absl::Status CheckThreadsLeft(int count, const std::string& what) {
  std::latch end(1);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  absl::Status status;
  try {
    while (threads.size() < static_cast<size_t>(count)) threads.emplace_back([&end] { end.wait(); });
  } catch (const std::system_error& error) {
    status = NoThread(absl::StrCat("the ", count, " threads of ", what), error);
  }
  end.count_down();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace xpud
