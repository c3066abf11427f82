// Does what takes long apart from the engine: work on a thread of its own, one piece after another, then what
// is to follow it on the engine's thread. The engine thread only.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "proto/base/mutex.h"

namespace xpud::executor {

class Background {
 public:
  // `wake`: any thread; FinishDone has something to do.
  explicit Background(std::function<void()> wake) : wake_(std::move(wake)) {}
  ~Background();  // after the piece under way; nothing else is done
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void Run(std::function<void()> work, std::function<void()> then);
  // What follows the work that is done.
  void FinishDone();

 private:
  struct Piece {
    std::function<void()> work, then;
  };
  void Main();

  const std::function<void()> wake_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Piece> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Piece> done_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> any_done_{false};
  std::thread thread_;  // begun with the first piece
};

}  // namespace xpud::executor
