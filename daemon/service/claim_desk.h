// Makes, changes and ends claims, as operators ask (control.h) and as their time runs out. One change is made
// after the other; each is kept in a file before it takes effect. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/lane/lanes.h"
#include "daemon/service/claim_doors.h"
#include "daemon/service/claim_store.h"
#include "daemon/service/door.h"
#include "daemon/service/sensor_sampler.h"
#include "daemon/tenant/claim.h"
#include "daemon/tenant/claims.h"
#include "proto/base/mutex.h"

namespace xpud::service {

class ClaimDesk {
 public:
  struct Options {
    ClaimDoors* doors = nullptr;               // not null; outlives the desk
    SensorSampler* sensors = nullptr;          // not null; outlives the desk
    std::unique_ptr<ClaimStore> store = {};    // null: claims end with the daemon
    std::function<void(Door)> open_door = {};  // clients may come in there from now on
    std::function<void(const std::string& claim)> close_doors = {};
  };

  // Serves the claims that were kept. Those that cannot be are events.
  static absl::StatusOr<std::unique_ptr<ClaimDesk>> Start(lane::Lanes& lanes, Options options);
  ~ClaimDesk();  // the claims that are kept stay
  ClaimDesk(const ClaimDesk&) = delete;
  ClaimDesk& operator=(const ClaimDesk&) = delete;

  size_t devices() const { return lanes_.size(); }
  bool keeps() const { return options_.store != nullptr; }
  const ClaimDoors& doors() const { return *options_.doors; }

  // REQUIRES for all that follows: not a lane's thread, nor the listener's.
  // Their errors are those that proto/control/xpud.proto lists. REQUIRES: CheckClaim is OK.
  absl::StatusOr<Claims::Entry> Create(const Claim& claim);
  // `change` makes the new claim out of the old one. `renews`: its lifetime begins anew.
  absl::StatusOr<Claims::Entry> Update(const std::string& key, bool renews,
                                       absl::FunctionRef<absl::StatusOr<Claim>(const Claim&)> change);
  struct Ended {
    uint32_t sessions = 0;
    uint64_t memory_bytes = 0;  // that they held when the end began
  };
  // Waits until the claim's memory is free, or `is_cancelled`, which then is DeadlineExceeded.
  absl::StatusOr<Ended> Delete(const std::string& key, absl::FunctionRef<bool()> is_cancelled);

  // What can still be guaranteed on each device beside these claims.
  std::vector<Guaranteeable> LeftBeside(const std::vector<Claims::Entry>& claims);

 private:
  // A claim whose sessions are being ended.
  struct Ending {
    const char* event;
    std::string reason;  // for its clients
    Ended ended;
    bool done = false;
  };

  ClaimDesk(lane::Lanes& lanes, Options options);
  absl::Status ServeKept() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Serve(const Claim& claim, uint64_t expires_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRoom() const;
  // Whether the claim can be there beside the others.
  absl::Status Admit(const Claim& claim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OpenDoors(const Claim& claim);
  // The claims that are there, but for this one and those that end.
  std::vector<Claim> OthersThan(const std::string& key) const;
  // `reclaims`: idle sessions give back the credit that they do not use.
  std::vector<DeviceRoom> Rooms(bool reclaims);
  // Has the lanes treat the tenant as the claim says; null: it has none any more.
  void Apply(const Tenant& tenant, const Claim* claim);
  // What the claim's sessions hold, on all devices; nullopt: it has none there.
  std::optional<uint64_t> HeldBy(const Tenant& tenant);
  absl::Status BeginEnd(const std::string& key, const char* event, const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the claims whose time is over, and goes on with those that end.
  void Main();
  void Continue(const std::string& key, Ending& ending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  lane::Lanes& lanes_;
  Claims& claims_;
  const Options options_;

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::shared_ptr<Ending>> ending_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace xpud::service
