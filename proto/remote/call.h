// The messages of one call, on gRPC's asynchronous API: a thread starts what it does, and one of EventLoop's
// tells what became of it. So what arrives can be taken by the thread that saw it arrive: none waits in gRPC
// for a call of its own, which would be woken for others' messages, too.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_stream.h>

#include <functional>
#include <utility>

#include "proto/base/mutex.h"
#include "proto/remote/event_loop.h"

namespace xpud::remote {

// Of the one thread that the call is served by, but for what says otherwise.
class Call {
 public:
  // Takes a message that has arrived, in a thread of EventLoop's; nullptr: no more will. Whether to read on;
  // where not, ReadOn says when.
  using Taker = std::function<bool(grpc::ByteBuffer* message)>;

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

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

 protected:
  using Reader = grpc::internal::AsyncReaderInterface<grpc::ByteBuffer>;
  using Writer = grpc::internal::AsyncWriterInterface<grpc::ByteBuffer>;

  explicit Call(EventLoop& loop);
  ~Call() = default;  // everything has ended
  // First of all.
  void SetStream(Reader& reader, Writer& writer);
  // Once the last write has ended; `operation` starts what is to end as one, with this event. False: the call
  // has ended.
  bool StartAsWrite(const std::function<void(Event* written)>& operation);
  // Something that HasEnded will be said of.
  void Begin();
  void HasEnded();
  // Until all of it has.
  void AwaitEnd();

  EventLoop& loop_;
  Mutex mutex_;
  CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> over_ ABSL_GUARDED_BY(mutex_);  // once everything has ended

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
