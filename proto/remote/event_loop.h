// Runs the callbacks of one end's gRPC calls: a completion queue, and the threads that wait for its events.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <thread>

#include "absl/status/status.h"

namespace xpud::remote {

// The tag of an operation on the queue. `happened` runs once, when the operation has completed or failed.
struct Event {
  std::function<void(bool ok)> happened;
};

class EventLoop {
 public:
  // REQUIRES: each tag on `queue` is an Event.
  explicit EventLoop(grpc::CompletionQueue& queue) : queue_(queue) {}
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  grpc::CompletionQueue& queue() { return queue_; }
  // Runs events until the queue has shut down. Thread-safe: with several threads, a long event does not delay
  // others.
  void Run();
  // Starts an operation. If an event is ready at once, of this operation or another, it runs here, and no
  // thread is woken for it. REQUIRES: the caller holds no lock. Thread-safe.
  void Start(const std::function<void()>& operation);

 private:
  // Waits for an event. Returns false when the queue has shut down.
  bool Next(void** event, bool* ok);

  grpc::CompletionQueue& queue_;
};

// A loop with its own queue and thread.
class EventThread {
 public:
  explicit EventThread(const char* name);
  // ResourceExhausted if the thread could not be started. Then the loop must not be used.
  const absl::Status& status() const { return status_; }
  // Waits until all operations on the queue have completed. REQUIRES: no more are started.
  ~EventThread();

  EventLoop& loop() { return loop_; }

 private:
  grpc::CompletionQueue queue_;
  EventLoop loop_{queue_};
  absl::Status status_;
  std::thread thread_;
};

}  // namespace xpud::remote
