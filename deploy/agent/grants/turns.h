// Runs what users ask for on a few threads: a user's tasks one after the other and at a limited rate, several
// users' at the same time. A user whose tasks are slow or many delays no other user's, unless kThreads users
// do. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace xpud::agent {

class Turns {
 public:
  static constexpr int kThreads = 4;
  // A user's tasks beyond the burst are this far from each other.
  static constexpr std::chrono::milliseconds kPeriod{50};
  static constexpr int kBurst = 16;

  // Called once, with OK when it is its turn, or with Unavailable if that never comes because the turns end.
  using Task = std::function<void(const absl::Status& turn)>;
  enum class Pace { kLimited, kUnlimited };

  static absl::StatusOr<std::unique_ptr<Turns>> Start();
  ~Turns() { End(); }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Adds a task after the user's earlier ones. The caller bounds their number.
  void Add(uint32_t uid, Pace pace, Task task);
  // Waits for the tasks that run. The others, and those that are added later, have no turn.
  void End();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Pace pace;
    Task task;
  };
  struct User {
    std::deque<Waiting> waiting = {};
    bool runs = false;
    Clock::time_point paid = {};  // when its tasks until now would have ended at one for each kPeriod
  };

  Turns() = default;
  void Run();
  // The next user with a task whose time has come, after the one that was served last. Otherwise sets `wake`.
  User* Next(Clock::time_point& wake) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Releases the lock while the task runs.
  void RunNext(User& user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets users without tasks, whose rate does not limit them.
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::map<uint32_t, User> users_ ABSL_GUARDED_BY(mutex_);
  uint32_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace xpud::agent
