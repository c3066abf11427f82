// A call to the network, at the end that makes it.
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
  // Begins it. `metadata`: further key and value pairs for the other end.
  ClientCall(EventLoop& loop, const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
             const std::map<std::string, std::string>& metadata);
  // Finish was called.
  ~ClientCall() = default;

  // Ends the call: nothing more arrives, or is sent. Any thread.
  void Cancel() { context_.TryCancel(); }
  // There is nothing more to send.
  void WritesDone();
  // How the other end has ended it; waits for that. Nothing is being read, or will be.
  grpc::Status Finish();

 private:
  grpc::ClientContext context_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  Event finished_;
};

}  // namespace xpud::remote
