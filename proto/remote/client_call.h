// The client's end of a gRPC call.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>

#include "proto/remote/call.h"

namespace xpud::remote {

class ClientCall final : public Call {
 public:
  // Starts the call. `metadata` are additional key and value pairs for the server.
  ClientCall(EventLoop& loop, const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
             const std::map<std::string, std::string>& metadata);
  // REQUIRES: Finish was called.
  ~ClientCall() = default;

  // Cancels the call. Thread-safe.
  void Cancel() { context_.TryCancel(); }
  // Says that this end sends no more messages.
  void WritesDone();
  // Blocks until the server ends the call and returns its status. REQUIRES: no read is in progress.
  grpc::Status Finish();

 private:
  grpc::ClientContext context_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  Event finished_;
};

}  // namespace xpud::remote
