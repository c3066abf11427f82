// DeviceSession's copies from another device of the session: a loan on the source's ring, and a copy on the
// target's.
#include "proto/base/status_macros.h"
#include "sdk/client/core.h"
#include "sdk/client/device_session.h"

namespace xpud::client {

DeviceSession* DeviceSession::AppendCopy(DeviceSession& source, wire::LendCommand lend,
                                         wire::CopyFromCommand copy) {
  if (source.transport_->Reserve(sizeof(lend)) == nullptr) return &source;
  if (transport_->Reserve(sizeof(copy)) == nullptr) return this;
  lend.loan = copy.loan = ++source.loans_;
  source.Append(lend);
  source.transport_->Publish();
  Append(copy);
  transport_->Publish();
  return nullptr;
}

// Both commands are sent under both locks. So whatever a ring waits for was sent before, and no two rings
// wait for each other.
absl::Status DeviceSession::CopyFrom(uint32_t queue, DeviceSession& source, uint32_t source_queue,
                                     BufferHandle from, uint64_t from_offset, BufferHandle to,
                                     uint64_t to_offset, uint64_t bytes) {
  RETURN_IF_ERROR(core_.CheckUsable());
  RETURN_IF_ERROR(core_.CheckIsOurs(from));
  RETURN_IF_ERROR(core_.CheckIsOurs(to));
  if (bytes == 0) return absl::OkStatus();
  const wire::LendCommand lend = {
      wire::Header(wire::CommandKind::kLend, source_queue, sizeof(wire::LendCommand)), wire::ToWire(from),
      from_offset, bytes, 0};
  const wire::CopyFromCommand copy = {
      wire::Header(wire::CommandKind::kCopyFrom, queue, sizeof(wire::CopyFromCommand)),
      wire::ToWire(to),
      to_offset,
      bytes,
      0,
      source.at_daemon_,
      0};
  for (;;) {
    DeviceSession* full = nullptr;
    // In the order of the devices, as all do who take both.
    if (source.device_ < device_) {
      SpinLock first(source.mutex_);
      SpinLock second(mutex_);
      full = AppendCopy(source, lend, copy);
    } else {
      SpinLock first(mutex_);
      SpinLock second(source.mutex_);
      full = AppendCopy(source, lend, copy);
    }
    if (full == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(full->UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(full->mutex_) {
      return full->transport_->Reserve(sizeof(wire::CopyFromCommand)) != nullptr;
    }));
  }
}

}  // namespace xpud::client
