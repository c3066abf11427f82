// Calls from the network: a thread for each, and a few that take what happens to any of them, which is all
// that waits in gRPC. (Its synchronous API has a waiting thread for each stream; all of them share one epoll
// set, and one that is woken for another's message wakes that one's thread in turn.)
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/remote/event_loop.h"
#include "proto/remote/server_call.h"

namespace xpud::remote {

class CallServer {
 public:
  // What the call ends with. Called in a thread of its own.
  using Handler = std::function<grpc::Status(ServerCall& call)>;

  // Has `body` run in a thread of its own. False: the system has none left.
  using StartThread = std::function<bool(std::function<void()> body)>;
  static bool StartDetached(std::function<void()> body);

  // `calls`: at once; further ones wait. Those for which there is no thread end with ResourceExhausted.
  CallServer(grpc::ServerBuilder& builder, int calls, StartThread start_thread = StartDetached);
  // Stop was called, or Start was not.
  ~CallServer();
  CallServer(const CallServer&) = delete;
  CallServer& operator=(const CallServer&) = delete;

  // Before Start. Calls of other methods are Unimplemented. `method`: "/package.Service/Method".
  void AddMethod(std::string method, Handler handler) { handlers_[std::move(method)] = std::move(handler); }
  // Once the server is there.
  void Start();
  // The calls may go on for so long; then they are cancelled. Until all have ended.
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
  std::unique_ptr<ServerCall> next_ ABSL_GUARDED_BY(mutex_);  // for which gRPC waits
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> waiters_;
};

}  // namespace xpud::remote
