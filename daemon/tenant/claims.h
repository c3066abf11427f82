// The claims of this daemon, and who has them. It answers the listener and the lanes; what an operator asks
// for is done by service/claim_desk.h, the only one that changes claims. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/tenant/claim.h"
#include "daemon/tenant/tenant.h"
#include "daemon/tenant/time_grant.h"
#include "proto/base/mutex.h"

namespace xpud {

class Claims {
 public:
  static constexpr size_t kMax = 1024;

  struct Entry {
    Claim claim;
    uint64_t expires_ns = 0;  // on the boot clock; 0: never
    uint32_t sessions = 0;    // that are open
    bool ends = false;        // its sessions are being ended; it admits no more
  };

  // ---- for the listener and the lanes

  // Returns the tenant to charge: the claim that this user, or tenant of a gateway, has at the ordinary
  // socket, and otherwise the holder itself.
  Tenant TenantOf(const Tenant& holder) const;
  TimeGrant GrantOf(const Tenant& tenant) const;
  // Counts a session of the tenant. Returns why there may be none: its claim has ended, is drained, or has as
  // many sessions as it may.
  absl::Status Admit(const Tenant& tenant);
  // The session has closed.
  void Leave(const Tenant& tenant);
  // Returns nullopt if the tenant is no claim that is there.
  std::optional<Claim> Find(const Tenant& tenant) const;

  bool empty() const;

  // ---- for the desk

  std::optional<Entry> Find(const std::string& key) const;
  // By key, with those whose sessions are being ended.
  std::vector<Entry> List() const;
  // Returns AlreadyExists if another claim has one of the holders of this one.
  absl::Status CheckHolders(const Claim& claim) const;
  // Adds the claim, or changes the one with this key.
  void Put(const Claim& claim, uint64_t expires_ns);
  // From now on it admits no sessions, and its holders are free.
  void BeginEnd(const std::string& key);
  void Remove(const std::string& key);

 private:
  mutable Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<Tenant, std::string> keys_ ABSL_GUARDED_BY(mutex_);  // by holder
};

// What tenants hold on a device, for the sums of guarantees.
struct DeviceRoom {
  uint64_t memory = 0;  // bytes that tenants can have together
  std::map<Tenant, uint64_t> held = {};
};

// What can still be guaranteed on a device.
struct Guaranteeable {
  uint64_t memory = 0;  // bytes
  uint32_t time = 0;    // hundredths of a per cent
};

// Time beyond this is left to those without a guarantee.
inline constexpr uint32_t kMaxGuaranteedTime = 9'500;

// `claims`: without those that are being changed or ended.
Guaranteeable LeftOn(uint32_t device, const std::vector<Claim>& claims, const DeviceRoom& room);
// Whether the guarantees of `wanted` can be given besides those of `claims`, which do not include it. `rooms`
// are those of all devices. Returns ResourceExhausted with the sums.
absl::Status CheckGuarantees(const Claim& wanted, const std::vector<Claim>& claims,
                             const std::vector<DeviceRoom>& rooms);

}  // namespace xpud
