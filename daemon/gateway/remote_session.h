// A remote client's session: its connection to the daemon, and a relay for each device that it uses.
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/gateway/session_relay.h"
#include "daemon/gateway/tenant_seats.h"
#include "proto/base/mutex.h"
#include "proto/transport/layout.h"
#include "sdk/client/connect.h"

namespace xpud::remote {

class RemoteSession {
 public:
  RemoteSession(std::string tenant, client::Connection connection, bool resumable)
      : tenant_(std::move(tenant)), connection_(std::move(connection)), resumable_(resumable) {}

  const std::string& tenant() const { return tenant_; }
  bool resumable() const { return resumable_; }
  const transport::Welcome& welcome() const { return connection_.welcome; }

  // As transport::SessionSocket::SetNice.
  absl::Status SetNice(uint32_t nice) const { return connection_.socket->SetNice(nice); }
  // Opens a device. `seat` lives as long as the session. Returns InvalidArgument if the device does not
  // exist or is open.
  absl::StatusOr<SessionRelay*> Open(uint32_t device, Seat seat);
  // Returns NotFound if the device is not open.
  absl::StatusOr<SessionRelay*> Find(uint32_t device);

 private:
  struct OnDevice {
    Seat seat;
    SessionRelay relay;
  };

  const std::string tenant_;
  const client::Connection connection_;
  const bool resumable_;
  Mutex mutex_;
  std::array<std::unique_ptr<OnDevice>, transport::kMaxDevices> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::remote
