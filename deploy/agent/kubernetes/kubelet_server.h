// A server on sockets in the kubelet's folder, which answers methods by the messages of Protocol Buffers. The
// servers of DRA and of the device plugin own one.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

class KubeletServer {
 public:
  KubeletServer() = default;
  KubeletServer(const KubeletServer&) = delete;
  KubeletServer& operator=(const KubeletServer&) = delete;
  ~KubeletServer() { Stop(std::chrono::milliseconds(0)); }

  // REQUIRES for the next two: Serve was not called.
  // Has a method with one request and one reply served: `handle` is called on the thread of each call, and
  // its error ends the call.
  template <typename Request, typename Reply>
  void AddUnary(const std::string& method, std::function<absl::StatusOr<Reply>(const Request&)> handle) {
    methods_[method] = [handle = std::move(handle)](remote::ServerCall& call) {
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
    };
  }
  // Has a method served whose replies `send` writes until the call is cancelled.
  void AddStream(const std::string& method, std::function<void(remote::ServerCall&)> send) {
    methods_[method] = [send = std::move(send)](remote::ServerCall& call) {
      grpc::ByteBuffer request;
      call.Read(request);
      send(call);
      return grpc::Status::OK;
    };
  }

  // Listens at the sockets, in this order, for the kubelet's user alone. Makes their folders, and replaces
  // files at their paths. Returns Unavailable if a socket cannot be made. Called once.
  absl::Status Serve(const std::vector<std::string>& sockets);
  // Lets calls go on for `patience`, then cancels them. The sockets' files are removed.
  void Stop(std::chrono::milliseconds patience);

 private:
  std::map<std::string, remote::CallServer::Handler> methods_;
  std::unique_ptr<remote::CallServer> calls_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace xpud::agent::kubernetes
