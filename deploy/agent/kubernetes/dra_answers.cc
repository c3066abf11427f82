#include "deploy/agent/kubernetes/dra_answers.h"

#include <string>
#include <utility>

namespace xpud::agent::kubernetes {
namespace {

namespace dra = ::k8s::io::kubelet::pkg::apis::dra::v1;

ClaimName NameOf(const dra::Claim& claim) { return {claim.namespace_(), claim.uid(), claim.name()}; }

dra::NodePrepareResourceResponse AnswerOf(const absl::StatusOr<DraDriver::Prepared>& prepared) {
  dra::NodePrepareResourceResponse answer;
  if (!prepared.ok()) {
    answer.set_error(std::string(prepared.status().message()));
    return answer;
  }
  for (const Allocation::Result& result : prepared->devices) {
    dra::Device& device = *answer.add_devices();
    device.add_request_names(result.request);
    device.set_pool_name(result.pool);
    device.set_device_name(result.device);
    device.add_cdi_device_ids(prepared->cdi_id);
  }
  return answer;
}

dra::NodeUnprepareResourceResponse AnswerOf(const absl::Status& status) {
  dra::NodeUnprepareResourceResponse answer;
  if (!status.ok()) answer.set_error(std::string(status.message()));
  return answer;
}

template <typename Response>
Response AnswerEach(const auto& request, auto call) {
  Response response;
  for (const dra::Claim& claim : request.claims())
    (*response.mutable_claims())[claim.uid()] = AnswerOf(call(NameOf(claim)));
  return response;
}

}  // namespace

dra::NodePrepareResourcesResponse AnswerPrepare(
    const dra::NodePrepareResourcesRequest& request,
    absl::FunctionRef<absl::StatusOr<DraDriver::Prepared>(const ClaimName&)> prepare) {
  return AnswerEach<dra::NodePrepareResourcesResponse>(request, prepare);
}

dra::NodeUnprepareResourcesResponse AnswerUnprepare(
    const dra::NodeUnprepareResourcesRequest& request,
    absl::FunctionRef<absl::Status(const ClaimName&)> unprepare) {
  return AnswerEach<dra::NodeUnprepareResourcesResponse>(request, unprepare);
}

}  // namespace xpud::agent::kubernetes
