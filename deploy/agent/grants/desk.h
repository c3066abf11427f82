// Answers the calls of deploy/agent/grants/grants.proto with claims. It keeps no state but which processes it
// watches: what a user has is what the daemon's claims say. Thread-safe, but for a user's calls one at a
// time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/grants/budget.h"
#include "deploy/agent/grants/grants.pb.h"
#include "deploy/agent/grants/process.h"
#include "deploy/agent/grants/process_watch.h"
#include "proto/base/mutex.h"

namespace xpud::agent {

class Desk {
 public:
  // `keeper` and `watch` outlive the desk.
  Desk(ClaimKeeper& keeper, ProcessWatch& watch, Budgets budgets)
      : keeper_(keeper), watch_(watch), budgets_(std::move(budgets)) {}

  // What users may have from now on. Grants that there are stay, also beyond it.
  void SetBudgets(Budgets budgets);

  // The calls. Their errors are those that grants.proto lists. They block while the daemon works, and wait up
  // to ClaimKeeper::kPatience for it.
  absl::StatusOr<grants::v1::GrantResponse> Grant(const Caller& caller, grants::v1::GrantRequest request);
  absl::StatusOr<grants::v1::RenewResponse> Renew(const Caller& caller,
                                                  const grants::v1::RenewRequest& request);
  absl::StatusOr<grants::v1::ReturnResponse> Return(const Caller& caller,
                                                    const grants::v1::ReturnRequest& request);
  absl::StatusOr<grants::v1::ListResponse> List(const Caller& caller, const grants::v1::ListRequest& request);

  // Deletes the grant of a process that has ended, unless it has another process by now.
  absl::Status EndOfProcess(const std::string& key);
  // Watches the processes of grants that an earlier agent made, deletes grants without their process, and
  // renews those that have no lease of their own. Returns the first error; the other grants are done.
  absl::Status Reconcile(const std::vector<v1::Claim>& claims);

 private:
  // Makes a claim, and watches its process.
  absl::StatusOr<v1::Claim> Make(const ClaimKeeper::Hold& hold, const v1::Claim& wanted,
                                 const Caller& caller);
  absl::StatusOr<v1::Claim> BeginLease(const ClaimKeeper::Hold& hold, v1::Claim claim, uint64_t lease_ms);
  absl::Status End(const ClaimKeeper::Hold& hold);
  absl::Status ReconcileOne(const v1::Claim& claim, const ProcessName& process);
  // The claim that the daemon has now; nullopt if there is none.
  absl::StatusOr<std::optional<v1::Claim>> Find(const std::string& key);
  // Forgets processes whose grants have ended.
  absl::Status ForgetEnded(const std::vector<v1::Claim>& claims);

  absl::StatusOr<std::optional<Budget>> BudgetOf(const Caller& caller) const;

  ClaimKeeper& keeper_;
  ProcessWatch& watch_;
  mutable Mutex mutex_;
  Budgets budgets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent
