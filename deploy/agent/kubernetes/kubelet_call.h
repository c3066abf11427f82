// A call of one of the kubelet's services.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "deploy/agent/kubernetes/kubelet_sockets.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {

inline constexpr std::chrono::seconds kKubeletTimeout{10};
inline constexpr int kClientThreads =
    8;  // that gRPC may start for a channel; without them it aborts or hangs

// Calls `method` of a service's stub at `socket`. Returns what went wrong, at the latest after
// kKubeletTimeout on the monotonic clock. Blocks.
template <typename Service, typename Request, typename Reply>
absl::StatusOr<Reply> CallKubelet(const std::string& socket, const Request& request,
                                  grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                        Reply*)) {
  RETURN_IF_ERROR(CheckThreadsLeft(kClientThreads, "gRPC"));
  typename Service::Stub stub(LocalChannel(socket));
  grpc::ClientContext context;
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                    gpr_time_from_seconds(kKubeletTimeout.count(), GPR_TIMESPAN)));
  Reply reply;
  const grpc::Status status = (stub.*method)(&context, request, &reply);
  if (status.ok()) return reply;
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("the kubelet at ", socket, " says: ", status.error_message()));
}

}  // namespace xpud::agent::kubernetes
