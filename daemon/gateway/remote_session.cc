#include "daemon/gateway/remote_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::remote {

absl::StatusOr<SessionRelay*> RemoteSession::Open(uint32_t device, Seat seat) {
  MutexLock lock(mutex_);
  if (device >= std::min<size_t>(welcome().device_count, transport::kMaxDevices) ||
      devices_[device] != nullptr)
    return absl::InvalidArgumentError(absl::StrCat("device ", device, " does not exist or is open"));
  ASSIGN_OR_RETURN(auto transport, client::OpenDevice(connection_, device));
  devices_[device].reset(new OnDevice{std::move(seat), SessionRelay(std::move(transport), resumable_)});
  return &devices_[device]->relay;
}

absl::StatusOr<SessionRelay*> RemoteSession::Find(uint32_t device) {
  MutexLock lock(mutex_);
  if (device >= transport::kMaxDevices || devices_[device] == nullptr)
    return absl::NotFoundError(absl::StrCat("device ", device, " is not open"));
  return &devices_[device]->relay;
}

}  // namespace xpud::remote
