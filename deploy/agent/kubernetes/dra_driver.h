// Dynamic resource allocation: makes a claim of xpud for each ResourceClaim that the kubelet prepares, and a
// CDI file that mounts the claim's folder over a container's /run/xpud. What should be there is known from
// the API server, the daemon's claims and the CDI files; the driver keeps nothing but tombstones.
// Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/engine.h"
#include "deploy/agent/kubernetes/api_server.h"
#include "deploy/agent/kubernetes/cdi_files.h"
#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/pod_resources.h"
#include "deploy/agent/kubernetes/resource_claim.h"
#include "deploy/agent/kubernetes/tombstones.h"
#include "proto/base/mutex.h"

namespace xpud::agent::kubernetes {

// The condition that CDI files can be written.
inline constexpr char kCdiCondition[] = "cdi-folder";

class DraDriver final : public Engine {
 public:
  struct Parts {
    ApiServer* api_server;  // none of these is null, and all outlive the driver
    ClaimKeeper* keeper;
    const CdiFiles* files;
    Tombstones* tombstones;
    Conditions* conditions;
    const PodResources* containers;
    std::string node;
    std::function<void()> was_refused;   // the daemon cannot guarantee what the slice promises
    std::function<void()> was_prepared;  // the kubelet will know the claim's containers soon; must not block
  };
  struct Prepared {
    std::vector<Allocation::Result> devices;
    std::string cdi_id;
  };

  explicit DraDriver(Parts parts) : parts_(std::move(parts)) {}

  // Makes the claim and its file, or finds them as they should be. Returns what is wrong with the
  // ResourceClaim, ResourceExhausted with the sums, FailedPrecondition for a call that comes after its
  // unprepare, and Unavailable while the API server or the daemon does not answer.
  absl::StatusOr<Prepared> Prepare(const ClaimName& name);
  // Removes both. OK if there is none.
  absl::Status Unprepare(const ClaimName& name);

  // Sets the label "container" of claims whose containers the kubelet lists. A claim that none of them has
  // keeps its label. Returns whether each claim has one; a kubelet that does not answer is no error. Blocks.
  bool LabelContainers();

  std::string_view name() const override { return kEngineName; }
  absl::Status Reconcile(const std::vector<v1::Claim>& claims) override;

 private:
  // What the API server says of a ResourceClaim: nullopt if it is not there any more, or nobody on this node
  // has it.
  absl::StatusOr<std::optional<Allocation>> Ask(const ClaimName& name);
  absl::StatusOr<Prepared> Make(const ClaimKeeper::Hold& hold, const Allocation& allocation);
  absl::Status Remove(const ClaimKeeper::Hold& hold, const std::string& uid);
  // Writes the file, and has the condition say whether that can be done.
  absl::Status Write(const CdiClaim& file);
  // Removes a file that tells nothing and that belongs to no claim.
  absl::Status Mend(const CdiFiles::Unreadable& file, bool has_claim);
  // `claim`: the daemon's; null if it has none. `away`: why the API server does not answer, which is set when
  // that is found; then it is not asked.
  absl::Status ReconcileOne(const ClaimName& name, const v1::Claim* claim, absl::Status& away);
  // The claim of an allocation, with the label of its containers if they are known.
  v1::Claim Labelled(const Allocation& allocation) const;
  // Sets the label of the claim that the daemon has now, if there is one.
  absl::Status SetContainer(const v1::Claim& listed, const std::string& text);
  // Logs why the containers are not known, if that is new; empty: they are.
  void NoteLook(const std::string& reason);

  const Parts parts_;
  mutable Mutex mutex_;
  std::map<std::string, std::string> containers_ ABSL_GUARDED_BY(mutex_);  // the labels, by uid of the claim
  std::string look_reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent::kubernetes
