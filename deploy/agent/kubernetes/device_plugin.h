// The device plugin's claims: one for each container to which the kubelet has given slots. The kubelet names
// slots and no pod when it allocates, and never says that a container has ended; both is known from its list
// of containers (PodResources). The daemon's claims are the record: a label has the slots. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/engine.h"
#include "deploy/agent/core/inventory_watch.h"
#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/pod_resources.h"
#include "deploy/agent/kubernetes/slots.h"
#include "proto/base/mutex.h"

namespace xpud::agent::kubernetes {

class DevicePlugin final : public Engine {
 public:
  struct Parts {
    ClaimKeeper* keeper;                  // none of these is null
    InventoryWatch* inventory;            // not used by Reconcile
    std::string kubelet;                  // the kubelet's folder
    uint32_t slots;                       // of each device, 1 to kMaxSlots
    std::function<void()> has_allocated;  // the next Reconcile should be soon
  };

  explicit DevicePlugin(Parts parts) : parts_(std::move(parts)), pods_(parts_.kubelet) {}

  // Makes a claim for each container, which gets these slots, and returns the folders to be mounted over
  // their /run/xpud. An older claim with one of the slots is deleted: the kubelet gives a slot only after its
  // container has ended. But a claim of just these slots whose container is not known yet is returned again,
  // because an init container and the pod's other containers may have the same slots, and calls may be
  // repeated. Returns what ClaimOf says, ResourceExhausted with the sums if the daemon cannot guarantee it,
  // and Unavailable or DeadlineExceeded while the daemon does not answer. Blocks.
  absl::StatusOr<std::vector<std::string>> Allocate(const std::vector<SlotSet>& containers);

  std::string_view name() const override { return kDevicePluginEngine; }
  std::chrono::seconds period() const override;
  // Labels claims with the pods that have them, deletes those without one, and makes again what the daemon
  // has lost. A claim is deleted when two looks at the list of containers, kMinBetweenLooks apart, do not
  // find its slots, and no session is open: PodResources does not list ordinary init containers.
  absl::Status Reconcile(const std::vector<v1::Claim>& claims) override;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPeriod{15};
  static constexpr std::chrono::seconds kShortPeriod{5};      // while the container of a claim is not known
  static constexpr std::chrono::seconds kMinBetweenLooks{3};  // the reconciliation may run at any time

  struct Known {
    v1::Claim claim;                                // as it was last made or seen
    std::optional<Clock::time_point> missed_since;  // a look did not find its slots
  };

  // The inventory, as soon as the daemon has answered once.
  absl::StatusOr<Inventory> Devices() const;
  // The engine's claims. Tries again for ClaimKeeper::kPatience: the kubelet does not repeat an Allocate.
  absl::StatusOr<std::vector<v1::Claim>> ListPatiently();
  // REQUIRES: all slots are held.
  absl::StatusOr<std::string> AllocateOne(const v1::Claim& wanted);
  absl::StatusOr<std::string> Make(const v1::Claim& wanted);
  absl::Status Delete(const std::string& key);
  absl::Status SetLabels(const v1::Claim& claim, const ContainerSlots& container);
  // Notes a claim of the daemon's.
  void Note(const v1::Claim& claim, bool is_listed);
  // Notes that a look that began then did not find the claim's slots, and deletes the claim if it is time to.
  absl::Status Miss(const v1::Claim& claim, Clock::time_point look);
  // Whether a known claim is not among these.
  bool LacksOne(const std::vector<v1::Claim>& claims) const;
  // Makes the claims of these containers again that were known and that the daemon does not have.
  absl::Status MakeLost(const PodResources::Look& look);

  const Parts parts_;
  const PodResources pods_;

  mutable Mutex mutex_;
  std::map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);  // by key
};

}  // namespace xpud::agent::kubernetes
