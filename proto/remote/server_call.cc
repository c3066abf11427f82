#include "proto/remote/server_call.h"

#include <chrono>
#include <utility>

namespace xpud::remote {
namespace {

constexpr std::chrono::seconds kLastWrite{2};

}  // namespace

ServerCall::ServerCall(EventLoop& loop) : Call(loop) {
  SetStream(stream_, stream_);
  finished_.happened = [this](bool) { HasEnded(); };
  done_.happened = [this](bool) {
    cancelled_.store(context_.IsCancelled());
    HasEnded();
  };
  Begin();  // for done_
  context_.AsyncNotifyWhenDone(&done_);
}

void ServerCall::Refuse(const grpc::Status& status, std::function<void()> over) {
  Begin();  // before `done_` can end, so that it is not the last event
  {
    MutexLock lock(mutex_);
    over_ = std::move(over);
  }
  stream_.Finish(status, &finished_);
}

void ServerCall::Finish(const grpc::Status& status) {
  {
    MutexLock lock(mutex_);
    const auto limit = std::chrono::steady_clock::now() + kLastWrite;  // in case the client reads nothing
    while (writing_ && std::chrono::steady_clock::now() < limit) changed_.WaitFor(mutex_, kLastWrite);
    if (writing_) context_.TryCancel();
    while (writing_) changed_.Wait(mutex_);
  }
  Begin();
  stream_.Finish(status, &finished_);
  AwaitEnd();
}

}  // namespace xpud::remote
