// What the control plane shows to users who are not operators: devices, the quotas that they have, and their
// own sessions, which they may profile and close. It answers gRPC calls on one connection.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/lane/lanes.h"
#include "daemon/tenant/tenant.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

class Control;

// The lanes of the devices that a tenant sees, by its own numbers: its claim's, or all.
std::vector<uint32_t> DevicesOf(const Tenant& tenant, const lane::Lanes& lanes);

class UserView {
 public:
  // Calls beyond this rate wait: each has the lanes' threads do some work.
  static constexpr int kCallsPerSecond = 200;
  static constexpr int kMaxCalls = 4;  // at a time

  // Answers on `connection`, a stream socket. `control` must outlive the view.
  static absl::StatusOr<std::unique_ptr<UserView>> Start(Control& control, lane::Lanes& lanes,
                                                         const Tenant& viewer, UniqueFd connection);
  ~UserView();  // cancels calls in progress
  UserView(const UserView&) = delete;
  UserView& operator=(const UserView&) = delete;

 private:
  class Service;
  struct Server;
  explicit UserView(std::unique_ptr<Server> server);
  const std::unique_ptr<Server> server_;
};

}  // namespace xpud::service
