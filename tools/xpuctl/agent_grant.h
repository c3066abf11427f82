// A grant of xpud-node-agent, asked for at the agent's local socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "deploy/agent/grants/grants.pb.h"
#include "proto/base/mutex.h"

namespace xpud::xpuctl {

class AgentGrant {
 public:
  // What Take has got. Without a grant, `refusal` is why: NotFound if no agent answers at the socket, else
  // what the agent says.
  struct Taken {
    std::unique_ptr<AgentGrant> grant;
    absl::Status refusal;
    bool may_pass = false;  // the same request may be granted later
  };

  // Asks once. The grant ends with this process; where the agent cannot watch it, a thread renews the grant.
  // Blocks for at most kCallTimeout, twice.
  static Taken Take(const std::string& socket, grants::v1::GrantRequest request);
  // Stops the renewals. The grant stays until Return, or until this process ends.
  ~AgentGrant();
  AgentGrant(const AgentGrant&) = delete;
  AgentGrant& operator=(const AgentGrant&) = delete;

  // Ends the grant and its sessions, and waits until their memory is free.
  absl::Status Return();
  const std::string& address() const { return granted_.address(); }  // what its clients have as XPUD_ADDRESS

 private:
  AgentGrant(std::string socket, grants::v1::GrantResponse granted)
      : socket_(std::move(socket)), granted_(std::move(granted)) {}
  absl::Status StartRenewals();
  void StopRenewals();
  void RenewAll();
  // Begins the lease anew. Returns how long it lasts, in ms.
  absl::StatusOr<uint64_t> Renew() const;

  const std::string socket_;
  const grants::v1::GrantResponse granted_;
  Mutex mutex_;
  CondVar changed_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread renews_;
};

}  // namespace xpud::xpuctl
