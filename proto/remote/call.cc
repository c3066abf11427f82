#include "proto/remote/call.h"

#include <utility>

namespace xpud::remote {

Call::Call(EventLoop& loop) : loop_(loop) {
  read_.happened = [this](bool ok) { HasRead(ok); };
  written_.happened = [this](bool ok) { HasWritten(ok); };
}

void Call::SetStream(Reader& reader, Writer& writer) {
  reader_ = &reader;
  writer_ = &writer;
}

bool Call::Read(grpc::ByteBuffer& message) {
  bool arrived = false;
  taker_ = [&](grpc::ByteBuffer* found) {
    arrived = found != nullptr;
    if (arrived) message.Swap(found);
    return false;
  };
  ReadOn();
  AwaitReadEnd();
  return arrived;
}

void Call::ReadOn() {
  {
    MutexLock lock(mutex_);
    ++pending_;
    ++reading_;
  }
  reader_->Read(&message_, &read_);
}

void Call::HasRead(bool ok) {
  const bool more = taker_(ok ? &message_ : nullptr);
  if (ok && more) return reader_->Read(&message_, &read_);
  MutexLock lock(mutex_);
  --reading_;
  --pending_;
  changed_.NotifyAll();
}

void Call::AwaitReadEnd() {
  MutexLock lock(mutex_);
  while (reading_ != 0) changed_.Wait(mutex_);
}

bool Call::Write(const grpc::ByteBuffer& message) {
  return StartAsWrite([&](Event* written) { writer_->Write(message, written); });
}

bool Call::StartAsWrite(const std::function<void(Event* written)>& operation) {
  {
    MutexLock lock(mutex_);
    while (writing_) changed_.Wait(mutex_);
    if (!writable_) return false;
    writing_ = true;
    ++pending_;
  }
  loop_.Start([&] { operation(&written_); });
  return true;
}

void Call::HasWritten(bool ok) {
  MutexLock lock(mutex_);
  writing_ = false;
  writable_ = writable_ && ok;
  --pending_;
  changed_.NotifyAll();
}

void Call::Begin() {
  MutexLock lock(mutex_);
  ++pending_;
}

void Call::HasEnded() {
  std::function<void()> over;  // may delete this object
  {
    MutexLock lock(mutex_);
    if (--pending_ == 0) over = std::move(over_);
    changed_.NotifyAll();
  }
  if (over) over();
}

void Call::AwaitEnd() {
  MutexLock lock(mutex_);
  while (pending_ != 0) changed_.Wait(mutex_);
}

}  // namespace xpud::remote
