// A call from the network, at the end that serves it.
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
  // Ends the call: nothing more arrives, or is sent. Any thread.
  void Cancel() { context_.TryCancel(); }
  // Whether it was, here, there or between. Any thread.
  bool IsCancelled() const { return cancelled_.load(); }

 private:
  friend class CallServer;
  // Once everything has ended; the last that is done with it.
  void Finish(const grpc::Status& status);
  // The same for a call that nothing was done with, without waiting: `over` is called then.
  void Refuse(const grpc::Status& status, std::function<void()> over);

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Event finished_, done_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace xpud::remote
