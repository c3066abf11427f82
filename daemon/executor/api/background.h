// Runs slow work on a thread of its own, one piece after another, and then a continuation on the lane's
// thread. While the system has no thread left, the work runs on the lane's thread. REQUIRES: the lane's
// thread.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/mutex.h"

namespace xpud::executor {

class Background {
 public:
  // `wake` is called on any thread when FinishDone has something to run. `thread`: its name.
  explicit Background(std::function<void()> wake, std::string thread = "xpud-import");
  ~Background();  // waits for the piece that runs; drops the others
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void Run(std::function<void()> work, std::function<void()> then);
  // Runs the continuations of finished work.
  void FinishDone();

 private:
  struct Piece {
    std::function<void()> work, then;
  };
  bool HasThread();  // tries to start it
  void Main();
  void Do(Piece piece);

  const std::function<void()> wake_;
  const std::string name_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Piece> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Piece> done_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> any_done_{false};
  std::thread thread_;  // not running if none could be started so far
};

}  // namespace xpud::executor
