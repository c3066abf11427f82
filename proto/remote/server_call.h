// The server's end of a gRPC call.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <string>

#include "proto/remote/call.h"

namespace xpud::remote {

class ServerCall final : public Call {
 public:
  explicit ServerCall(EventLoop& loop);

  const std::string& method() const { return context_.method(); }
  const grpc::ServerContext& context() const { return context_; }
  // Cancels the call. Thread-safe.
  void Cancel() { context_.TryCancel(); }
  // Whether the call was cancelled, by either end or by the network. Thread-safe.
  bool IsCancelled() const { return cancelled_.load(); }

 private:
  friend class CallServer;
  // Ends the call with `status` and blocks until all its operations have ended.
  void Finish(const grpc::Status& status);
  // Ends a call on which nothing was started. Does not block: `over` is called at the end.
  void Refuse(const grpc::Status& status, std::function<void()> over);

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Event finished_, done_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace xpud::remote
