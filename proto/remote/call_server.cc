#include "proto/remote/call_server.h"

#include <utility>

#include "proto/base/spin.h"
#include "proto/base/start_thread.h"

namespace xpud::remote {
namespace {

// While one thread handles a long event, another one waits for the next.
int Waiters() { return HasFewCores() ? 1 : 2; }

}  // namespace

bool CallServer::StartDetached(std::function<void()> body) {
  auto started = xpud::StartThread("xpud-call", std::move(body));
  if (started.ok()) started->detach();
  return started.ok();
}

CallServer::CallServer(grpc::ServerBuilder& builder, int calls, StartThread start_thread)
    : max_calls_(calls), start_thread_(std::move(start_thread)), queue_(builder.AddCompletionQueue()) {
  builder.RegisterAsyncGenericService(&service_);
  arrived_.happened = [this](bool ok) { HasArrived(ok); };
}

CallServer::~CallServer() {
  queue_->Shutdown();
  for (std::thread& waiter : waiters_) waiter.join();
  loop_.Run();  // drains the queue if there was no waiting thread
}

absl::Status CallServer::Start() {
  for (int i = 0; i < Waiters(); ++i) {
    auto started = xpud::StartThread("xpud-network", [this] { loop_.Run(); });
    if (!started.ok() && waiters_.empty()) return started.status();
    if (started.ok()) waiters_.push_back(*std::move(started));
  }
  MutexLock lock(mutex_);
  Accept();
  return absl::OkStatus();
}

void CallServer::Stop(grpc::Server& server, std::chrono::milliseconds patience) {
  {
    MutexLock lock(mutex_);
    stops_ = true;
  }
  server.Shutdown(std::chrono::system_clock::now() + patience);
  MutexLock lock(mutex_);
  while (calls_ != 0 || next_ != nullptr) changed_.Wait(mutex_);
}

void CallServer::Accept() {
  next_ = std::make_unique<ServerCall>(loop_);
  service_.RequestCall(&next_->context_, &next_->stream_, queue_.get(), queue_.get(), &arrived_);
}

void CallServer::HasArrived(bool ok) {
  std::unique_ptr<ServerCall> call;
  {
    MutexLock lock(mutex_);
    call = std::move(next_);
    if (!ok) return changed_.NotifyAll();  // the server shuts down
    if (++calls_ < max_calls_ && !stops_) Accept();
  }
  ServerCall* const served = call.release();  // owns itself; deleted when it ends
  const auto ends = [this, served] {
    delete served;
    HasEnded();
  };
  const auto body = [this, served, ends] {
    Serve(*served);
    ends();
  };
  if (!start_thread_(body))
    served->Refuse({grpc::RESOURCE_EXHAUSTED, "cannot start a thread for this call; try again later"}, ends);
}

void CallServer::Serve(ServerCall& call) const {
  const auto handler = handlers_.find(call.method());
  call.Finish(handler != handlers_.end()
                  ? handler->second(call)
                  : grpc::Status(grpc::UNIMPLEMENTED, "there is no method " + call.method()));
}

void CallServer::HasEnded() {
  MutexLock lock(mutex_);
  if (--calls_ < max_calls_ && next_ == nullptr && !stops_) Accept();
  changed_.NotifyAll();
}

}  // namespace xpud::remote
