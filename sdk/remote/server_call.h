// One call from the network, on gRPC's asynchronous API: the thread that serves it starts what it does, and a
// thread of CallServer's tells what became of it. So what arrives can be taken by the thread that saw it
// arrive: none waits in gRPC for a call of its own, which would be woken for others' messages, too.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <string>

#include "proto/base/mutex.h"

namespace xpud::remote {

// What gRPC's completion queue is given, and gives back.
struct Event {
  std::function<void(bool ok)> happened;
};

// The serving thread's, but for what says otherwise.
class ServerCall {
 public:
  // Takes a message that has arrived, in a thread of CallServer's; nullptr: no more will. Whether to read on;
  // where not, ReadOn says when.
  using Taker = std::function<bool(grpc::ByteBuffer* message)>;

  ServerCall();
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  const std::string& method() const { return context_.method(); }
  const grpc::ServerContext& context() const { return context_; }
  // Ends the call: nothing more arrives, or is sent. Any thread.
  void Cancel() { context_.TryCancel(); }
  // Whether it was, here, there or between. Any thread.
  bool IsCancelled() const { return cancelled_.load(); }

  // Waits for the next message. False: there will be none.
  bool Read(grpc::ByteBuffer& message);
  // Who takes messages from now on. Nothing is being read.
  void SetTaker(Taker taker) { taker_ = std::move(taker); }
  // Any thread.
  void ReadOn();
  // Until nothing is being read, nor taken.
  void AwaitReadEnd();
  // Sends once the one before has been sent. False: the call has ended.
  bool Write(const grpc::ByteBuffer& message);

 private:
  friend class CallServer;
  // Once everything has ended; the last that is done with it.
  void Finish(const grpc::Status& status);
  // The same for a call that nothing was done with, without waiting: `over` is called then.
  void Refuse(const grpc::Status& status, std::function<void()> over);
  void HasRead(bool ok);
  void HasWritten(bool ok);
  void HasEnded();  // one of `pending_`

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Event read_, written_, finished_, done_;
  grpc::ByteBuffer message_;
  Taker taker_;
  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  CondVar changed_;
  int pending_ ABSL_GUARDED_BY(mutex_) = 1;  // events that have not happened; `done_` of all
  int reading_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writable_ ABSL_GUARDED_BY(mutex_) = true;
  std::function<void()> over_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::remote
