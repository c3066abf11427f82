// One client's session: what its parts on all devices have in common. The part on a device, with its own
// ring, is a DeviceSession, which belongs to the device's lane. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/handles/host_memory.h"
#include "daemon/handles/loans.h"
#include "daemon/tenant/tenant.h"
#include "proto/base/mutex.h"
#include "proto/transport/layout.h"
#include "proto/transport/transport.h"

namespace xpud::session {

// The process at the other end, as the kernel reports it, and who is charged for it.
struct Peer {
  int32_t pid = 0;
  uint32_t uid = 0;
  Tenant tenant;
  std::string name;  // as the client calls itself
};

class Session {
 public:
  // `devices`: the lanes of the devices that the client sees, by its own numbers.
  Session(uint64_t id, Peer peer, std::vector<uint32_t> devices,
          std::shared_ptr<handles::HostMemories> host_memories);

  uint64_t id() const { return id_; }
  const Peer& peer() const { return peer_; }
  uint64_t opened_ns() const { return opened_ns_; }
  const std::shared_ptr<handles::HostMemories>& host_memories() const { return host_memories_; }

  // Returns the lane of a device, by the client's number, or nullopt if the client has no such device.
  std::optional<uint32_t> LaneOf(uint32_t device) const {
    return device < devices_.size() ? std::optional(devices_[device]) : std::nullopt;
  }
  const std::vector<uint32_t>& devices() const { return devices_; }

  // What follows names devices by their lanes. The session uses a device from now on.
  void SetOpen(uint32_t device, const std::shared_ptr<transport::ServerTransport>& transport);
  bool IsOpen(uint32_t device) const;
  // Returns the completed sequence of a queue of any device, or nullopt if the session does not use it.
  std::optional<uint64_t> Completed(uint32_t device, uint32_t queue) const;

  // What its devices lend to each other.
  handles::Loans& loans() { return loans_; }

  // The session's quota on a device, which may not be open yet. Kept for the lane that opens it.
  void SetQuota(uint32_t device, std::optional<uint64_t> bytes);
  std::optional<uint64_t> quota(uint32_t device) const;

  // How far it has lowered itself. The lanes must be told of a change: Lane::NiceChanged.
  uint32_t nice() const { return nice_.load(); }
  // Returns the nice that it had, or CheckNice's error.
  absl::StatusOr<uint32_t> SetNice(uint32_t nice, bool may_raise);

  // Marks the session as closed. Returns whether it was not before.
  bool Close() { return !closed_.exchange(true); }
  bool is_closed() const { return closed_.load(); }

 private:
  // Has its part on a device look again, as a client that rings does. Any lane's thread.
  void Ring(uint32_t device) const;

  const uint64_t id_;
  const Peer peer_;
  const std::vector<uint32_t> devices_;
  const uint64_t opened_ns_;
  const std::shared_ptr<handles::HostMemories> host_memories_;
  std::atomic<bool> closed_{false};
  std::atomic<uint32_t> nice_{0};
  handles::Loans loans_;

  mutable Mutex mutex_;
  uint64_t open_devices_ ABSL_GUARDED_BY(mutex_) = 0;  // bit d
  std::array<std::optional<uint64_t>, transport::kMaxDevices> quotas_ ABSL_GUARDED_BY(mutex_);
  // Those of closing device sessions have ended.
  std::array<std::weak_ptr<transport::ServerTransport>, transport::kMaxDevices> transports_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::session
