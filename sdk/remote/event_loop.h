// What happens to one end's calls: gRPC's completion queue, and the threads that take what it gives.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <semaphore>
#include <thread>

#include "proto/transport/patience.h"

namespace xpud::remote {

// What the queue is given, and gives back.
struct Event {
  std::function<void(bool ok)> happened;
};

class EventLoop {
 public:
  // The tags of all that is waited for on `queue` are Events.
  explicit EventLoop(grpc::CompletionQueue& queue) : queue_(queue) {}
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  grpc::CompletionQueue& queue() { return queue_; }
  // Takes what happens, until the queue has ended. Of several threads one waits in gRPC and takes what it
  // finds, and the others help where that takes long. (Of all that wait in gRPC, one would be woken for each
  // event that another one is given.)
  void Run();
  // Starts an operation. One that is done at once has happened here: no thread is woken for it. Something
  // else may have happened here, too, so the caller holds no lock. Any thread.
  void Start(const std::function<void()>& operation);

 private:
  using Clock = transport::Patience::Clock;

  // Waits for an event, and takes it. False: the queue has ended.
  bool TakeNext();
  bool Next(void** event, bool* ok);

  grpc::CompletionQueue& queue_;
  transport::Patience patience_{Clock::duration::zero(), /*cores_to_spare=*/true};
  std::binary_semaphore turn_{1};  // to wait, and to take what is short
  std::atomic<int> threads_{0};
  std::atomic<int> lengthy_events_{0};  // to be expected, as there has been one, and a thread that may help
};

// A loop with a queue and a thread of its own.
class EventThread {
 public:
  explicit EventThread(const char* name);
  // All that was waited for has happened.
  ~EventThread();

  EventLoop& loop() { return loop_; }

 private:
  grpc::CompletionQueue queue_;
  EventLoop loop_{queue_};
  std::thread thread_;
};

}  // namespace xpud::remote
