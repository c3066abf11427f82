#include "deploy/agent/slurm/service.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <memory>

#include "deploy/agent/slurm/slurm.grpc.pb.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::slurm {
namespace {

namespace messages = xpud::slurm::v1;

class Service final : public messages::Slurm::CallbackService {
 public:
  // Both outlive the service.
  Service(Slurm& engine, Calls& calls) : engine_(engine), calls_(calls) {}

  grpc::ServerUnaryReactor* Begin(grpc::CallbackServerContext* context, const messages::BeginRequest* request,
                                  messages::BeginResponse* response) override {
    return Answer(*context, "begin", request, response, &Slurm::Begin);
  }
  grpc::ServerUnaryReactor* End(grpc::CallbackServerContext* context, const messages::EndRequest* request,
                                messages::EndResponse* response) override {
    return Answer(*context, "end", request, response, &Slurm::End);
  }

 private:
  // Calls for a job run one after the other.
  template <typename Request, typename Response, typename Method>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const char* action,
                                   const Request* request, Response* response, Method method) {
    const Calls::Call call = {.engine = kSlurmEngine,
                              .action = action,
                              .turns = &engine_.turns(),
                              .user = request->job_id(),
                              .pace = Turns::Pace::kUnlimited};
    return calls_.Answer(context, call, [=, this]() -> absl::Status {
      absl::StatusOr<Response> answer = (engine_.*method)(*request);
      RETURN_IF_ERROR(answer.status());
      *response = *std::move(answer);
      return absl::OkStatus();
    });
  }

  Slurm& engine_;
  Calls& calls_;
};

}  // namespace

Door::MakeService ServiceOf(Slurm& engine) {
  return [&engine](const Caller& caller, Calls& calls) -> std::unique_ptr<grpc::Service> {
    if (caller.uid != 0 && caller.uid != geteuid()) return nullptr;
    return std::make_unique<Service>(engine, calls);
  };
}

}  // namespace xpud::agent::slurm
