#include "sdk/remote/server_call.h"

#include <chrono>
#include <utility>

namespace xpud::remote {
namespace {

constexpr std::chrono::seconds kLastWrite{2};

}  // namespace

ServerCall::ServerCall() {
  read_.happened = [this](bool ok) { HasRead(ok); };
  written_.happened = [this](bool ok) { HasWritten(ok); };
  finished_.happened = [this](bool) { HasEnded(); };
  done_.happened = [this](bool) {
    cancelled_.store(context_.IsCancelled());
    HasEnded();
  };
  context_.AsyncNotifyWhenDone(&done_);
}

bool ServerCall::Read(grpc::ByteBuffer& message) {
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

void ServerCall::ReadOn() {
  {
    MutexLock lock(mutex_);
    ++pending_;
    ++reading_;
  }
  stream_.Read(&message_, &read_);
}

void ServerCall::HasRead(bool ok) {
  const bool more = taker_(ok ? &message_ : nullptr);
  if (ok && more) return stream_.Read(&message_, &read_);
  MutexLock lock(mutex_);
  --reading_;
  --pending_;
  changed_.NotifyAll();
}

void ServerCall::AwaitReadEnd() {
  MutexLock lock(mutex_);
  while (reading_ != 0) changed_.Wait(mutex_);
}

bool ServerCall::Write(const grpc::ByteBuffer& message) {
  {
    MutexLock lock(mutex_);
    while (writing_) changed_.Wait(mutex_);
    if (!writable_) return false;
    writing_ = true;
    ++pending_;
  }
  stream_.Write(message, &written_);
  return true;
}

void ServerCall::HasWritten(bool ok) {
  MutexLock lock(mutex_);
  writing_ = false;
  writable_ = writable_ && ok;
  --pending_;
  changed_.NotifyAll();
}

void ServerCall::HasEnded() {
  std::function<void()> over;  // which may be the end of this
  {
    MutexLock lock(mutex_);
    if (--pending_ == 0) over = std::move(over_);
    changed_.NotifyAll();
  }
  if (over) over();
}

void ServerCall::Refuse(const grpc::Status& status, std::function<void()> over) {
  {
    MutexLock lock(mutex_);
    ++pending_;
    over_ = std::move(over);
  }
  stream_.Finish(status, &finished_);
}

void ServerCall::Finish(const grpc::Status& status) {
  {
    MutexLock lock(mutex_);
    const auto limit = std::chrono::steady_clock::now() + kLastWrite;  // of a client that takes nothing
    while (writing_ && std::chrono::steady_clock::now() < limit) changed_.WaitFor(mutex_, kLastWrite);
    if (writing_) context_.TryCancel();
    while (writing_) changed_.Wait(mutex_);
    ++pending_;
  }
  stream_.Finish(status, &finished_);
  MutexLock lock(mutex_);
  while (pending_ != 0) changed_.Wait(mutex_);
}

}  // namespace xpud::remote
