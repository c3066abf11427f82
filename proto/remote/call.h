// Messages of one call on gRPC's asynchronous API. A thread of the call starts operations; a thread of
// EventLoop reports their completion, and may handle an arrived message there and then. No thread blocks
// inside gRPC for one call: it would be woken for the messages of other calls.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_stream.h>

#include <functional>
#include <utility>

#include "proto/base/mutex.h"
#include "proto/remote/event_loop.h"

namespace xpud::remote {

// REQUIRES: the thread that serves the call, unless a function says otherwise.
class Call {
 public:
  // Called with each arrived message, on a thread of EventLoop; with nullptr after the last. Returns whether
  // to read on; after false, reading goes on when ReadOn is called.
  using Taker = std::function<bool(grpc::ByteBuffer* message)>;

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Blocks for the next message. Returns false if there are no more.
  bool Read(grpc::ByteBuffer& message);
  // Sets the function that takes messages from now on. REQUIRES: no read is in progress.
  void SetTaker(Taker taker) { taker_ = std::move(taker); }
  // Resumes reading. Thread-safe.
  void ReadOn();
  // Blocks until no read is in progress and the taker has returned.
  void AwaitReadEnd();
  // Starts sending when the previous message has been sent. Returns false if the call has ended.
  bool Write(const grpc::ByteBuffer& message);

 protected:
  using Reader = grpc::internal::AsyncReaderInterface<grpc::ByteBuffer>;
  using Writer = grpc::internal::AsyncWriterInterface<grpc::ByteBuffer>;

  explicit Call(EventLoop& loop);
  ~Call() = default;  // REQUIRES: all operations have ended
                      // Called before all other functions.
  void SetStream(Reader& reader, Writer& writer);
  // Starts `operation`, which ends with the event `written`, when the last write has ended. Returns false if
  // the call has ended.
  bool StartAsWrite(const std::function<void(Event* written)>& operation);
  // Registers a pending event, which must end with HasEnded.
  void Begin();
  void HasEnded();
  // Blocks until all pending events have ended.
  void AwaitEnd();

  EventLoop& loop_;
  Mutex mutex_;
  CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> over_ ABSL_GUARDED_BY(mutex_);  // called when all events have ended

 private:
  void HasRead(bool ok);
  void HasWritten(bool ok);

  Reader* reader_ = nullptr;
  Writer* writer_ = nullptr;
  Event read_, written_;
  grpc::ByteBuffer message_;
  Taker taker_;
  int pending_ ABSL_GUARDED_BY(mutex_) = 0;  // events that have not happened
  int reading_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writable_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace xpud::remote
