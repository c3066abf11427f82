// The answers to what the kubelet asks about claims: one for each claim of the request, by its uid.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "deploy/agent/kubelet/dra.pb.h"
#include "deploy/agent/kubernetes/dra_driver.h"
#include "deploy/agent/kubernetes/names.h"

namespace xpud::agent::kubernetes {

// Call the function for each claim, in order, with whatever name the request has. A uid that is there twice
// has the answer of its last call.
k8s::io::kubelet::pkg::apis::dra::v1::NodePrepareResourcesResponse AnswerPrepare(
    const k8s::io::kubelet::pkg::apis::dra::v1::NodePrepareResourcesRequest& request,
    absl::FunctionRef<absl::StatusOr<DraDriver::Prepared>(const ClaimName&)> prepare);
k8s::io::kubelet::pkg::apis::dra::v1::NodeUnprepareResourcesResponse AnswerUnprepare(
    const k8s::io::kubelet::pkg::apis::dra::v1::NodeUnprepareResourcesRequest& request,
    absl::FunctionRef<absl::Status(const ClaimName&)> unprepare);

}  // namespace xpud::agent::kubernetes
