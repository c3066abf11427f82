// Serves gRPC calls: one thread for each call, and one or two threads that wait for events of all calls.
// (gRPC's synchronous API has a waiting thread for each stream on one shared epoll set. A thread that is
// woken for another call's message must wake that call's thread.)
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "proto/remote/event_loop.h"
#include "proto/remote/server_call.h"

namespace xpud::remote {

class CallServer {
 public:
  // Returns the status that ends the call. Called on a thread of its own.
  using Handler = std::function<grpc::Status(ServerCall& call)>;

  // Runs `body` on a new thread. Returns false if the system has no threads left.
  using StartThread = std::function<bool(std::function<void()> body)>;
  static bool StartDetached(std::function<void()> body);

  // `calls` is the maximum number of concurrent calls; further calls wait. A call for which no thread can be
  // started ends with ResourceExhausted.
  CallServer(grpc::ServerBuilder& builder, int calls, StartThread start_thread = StartDetached);
  // REQUIRES: Stop was called, or Start did not succeed.
  ~CallServer();
  CallServer(const CallServer&) = delete;
  CallServer& operator=(const CallServer&) = delete;

  // REQUIRES: Start was not called. Calls of unregistered methods end with Unimplemented. `method`:
  // "/package.Service/Method".
  void AddMethod(std::string method, Handler handler) { handlers_[std::move(method)] = std::move(handler); }
  // REQUIRES: the gRPC server has been built. Returns ResourceExhausted, and accepts no calls, if no waiting
  // thread can be started.
  absl::Status Start();
  // Lets calls go on for `patience`, then cancels them. Blocks until all have ended.
  void Stop(grpc::Server& server, std::chrono::milliseconds patience);

 private:
  void Accept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HasArrived(bool ok);
  void Serve(ServerCall& call) const;
  void HasEnded();

  const int max_calls_;
  const StartThread start_thread_;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  EventLoop loop_{*queue_};
  grpc::AsyncGenericService service_;
  std::map<std::string, Handler> handlers_;
  Event arrived_;
  Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<ServerCall> next_ ABSL_GUARDED_BY(mutex_);  // accepts the next call
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> waiters_;
};

}  // namespace xpud::remote
