#include "proto/remote/client_call.h"

namespace xpud::remote {

ClientCall::ClientCall(EventLoop& loop, const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& method, const std::map<std::string, std::string>& metadata)
    : Call(loop), stub_(channel) {
  for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
  stream_ = stub_.PrepareCall(&context_, method, &loop.queue());
  SetStream(*stream_, *stream_);
  finished_.happened = [this](bool) { HasEnded(); };
  StartAsWrite([this](Event* started) { stream_->StartCall(started); });
}

void ClientCall::WritesDone() {
  StartAsWrite([this](Event* written) { stream_->WritesDone(written); });
}

grpc::Status ClientCall::Finish() {
  grpc::Status status;
  Begin();
  stream_->Finish(&status, &finished_);
  AwaitEnd();
  return status;
}

}  // namespace xpud::remote
