// What the servers for the kubelet have in common: methods with one request and one reply, by the messages of
// Protocol Buffers.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/remote/call_server.h"

namespace xpud::agent::kubernetes {

template <typename Message>
grpc::ByteBuffer BytesOf(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
  return bytes;
}

// Has `calls` serve a method: `handle` is called on the thread of each call, and its error ends the call.
template <typename Request, typename Reply>
void AddUnary(remote::CallServer& calls, const std::string& method,
              std::function<absl::StatusOr<Reply>(const Request&)> handle) {
  calls.AddMethod(method, [handle = std::move(handle)](remote::ServerCall& call) {
    grpc::ByteBuffer bytes;
    Request request;
    if (!call.Read(bytes) || !grpc::SerializationTraits<Request>::Deserialize(&bytes, &request).ok())
      return grpc::Status(grpc::INVALID_ARGUMENT, "the call has no request of this method");
    const absl::StatusOr<Reply> reply = handle(request);
    if (!reply.ok())
      return grpc::Status(static_cast<grpc::StatusCode>(reply.status().code()),
                          std::string(reply.status().message()));
    call.Write(BytesOf(*reply));
    return grpc::Status::OK;
  });
}

}  // namespace xpud::agent::kubernetes
