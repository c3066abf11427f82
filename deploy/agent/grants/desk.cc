#include "deploy/agent/grants/desk.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "deploy/agent/grants/request.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent {
namespace {

const Budget* PointerTo(const std::optional<Budget>& budget) { return budget ? &*budget : nullptr; }

// Whether the user may change this grant.
absl::Status CheckOwner(const std::string& grant, uint32_t uid) {
  const std::optional<uint32_t> owner = OwnerOf(grant);
  if (!owner) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", PrintableText(grant, 80), "\" cannot be a grant; use the id that Grant has returned"));
  }
  if (*owner == uid) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the grant ", grant, " is that of uid ", *owner, ", and you are uid ", uid));
}

grants::v1::Budget MessageOf(const Budget& budget) {
  grants::v1::Budget message;
  message.set_share(budget.share);
  if (budget.memory) message.set_memory_bytes(*budget.memory);
  message.set_claims(budget.claims);
  message.set_class_(budget.best_class);
  message.set_lease_ms(budget.lease_ms);
  return message;
}

}  // namespace

void Desk::SetBudgets(Budgets budgets) {
  const MutexLock lock(mutex_);
  budgets_ = std::move(budgets);
}

absl::StatusOr<std::optional<Budget>> Desk::BudgetOf(const Caller& caller) const {
  const MutexLock lock(mutex_);
  return budgets_.Of(caller);
}

absl::StatusOr<std::optional<v1::Claim>> Desk::Find(const std::string& key) {
  ASSIGN_OR_RETURN(const std::vector<v1::Claim> claims, keeper_.List(kGrantsEngine));
  const auto found = std::ranges::find(claims, key, &v1::Claim::key);
  return found != claims.end() ? std::optional(*found) : std::nullopt;
}

absl::StatusOr<grants::v1::GrantResponse> Desk::Grant(const Caller& caller,
                                                      grants::v1::GrantRequest request) {
  const std::string user = UserText(caller.uid);
  ASSIGN_OR_RETURN(const std::optional<Budget> budget, BudgetOf(caller));
  RETURN_IF_ERROR(Complete(request, PointerTo(budget), user));
  std::optional<ProcessName> process;
  if (request.until_caller_ends()) {
    ASSIGN_OR_RETURN(process, NameOf(caller.process));
  }
  const std::string key = KeyOf(caller.uid, request.name());
  const v1::Claim wanted = ClaimOf(request, key, caller.uid, process);
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, keeper_.Acquire(key));
  ASSIGN_OR_RETURN(const std::vector<v1::Claim> claims, keeper_.List(kGrantsEngine));
  absl::StatusOr<v1::Claim> claim = absl::NotFoundError("");
  if (const auto found = std::ranges::find(claims, key, &v1::Claim::key); found != claims.end()) {
    if (const std::string differences = DifferencesOf(*found, wanted); !differences.empty()) {
      return absl::AlreadyExistsError(absl::StrCat("there is a grant \"", request.name(), "\", ", key,
                                                   ", with another ", differences, "; return it first"));
    }
    claim = BeginLease(hold, wanted, wanted.lifetime_ms());
  }
  if (absl::IsNotFound(claim.status())) {  // it is new, or has ended just now
    if (budget) RETURN_IF_ERROR(Usage(claims, caller.uid).Admit(request, *budget, user));
    claim = Make(hold, wanted, caller);
  }
  if (!claim.ok()) return claim.status();
  grants::v1::GrantResponse response;
  response.set_grant(key);
  response.set_address(AddressOf(*claim));
  response.set_expires_in_ms(claim->expires_in_ms());
  return response;
}

absl::StatusOr<v1::Claim> Desk::Make(const ClaimKeeper::Hold& hold, const v1::Claim& wanted,
                                     const Caller& caller) {
  ASSIGN_OR_RETURN(v1::Claim claim, keeper_.Ensure(hold, wanted));
  if (const auto process = ProcessOf(wanted)) {
    if (absl::Status watched = watch_.Add(hold.key(), *process, caller.process); !watched.ok()) {
      RETURN_IF_ERROR(End(hold));
      return watched;
    }
  }
  spdlog::info("grant_made claim={} engine={} share={} class={} lease_ms={} pid={}", hold.key(),
               kGrantsEngine, claim.weight(), claim.class_(), claim.lifetime_ms(), StateOf(claim).pid());
  return claim;
}

absl::StatusOr<v1::Claim> Desk::BeginLease(const ClaimKeeper::Hold& hold, v1::Claim claim,
                                           uint64_t lease_ms) {
  claim.set_lifetime_ms(lease_ms);
  return keeper_.Change(hold, claim, {"lifetime_ms"});
}

absl::StatusOr<grants::v1::RenewResponse> Desk::Renew(const Caller& caller,
                                                      const grants::v1::RenewRequest& request) {
  RETURN_IF_ERROR(CheckOwner(request.grant(), caller.uid));
  const std::string user = UserText(caller.uid);
  RETURN_IF_ERROR(CheckLease(request.lease_ms(), nullptr, user));
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, keeper_.Acquire(request.grant()));
  ASSIGN_OR_RETURN(const std::optional<v1::Claim> claim, Find(request.grant()));
  absl::StatusOr<v1::Claim> renewed = absl::NotFoundError("");
  if (claim) {
    // A grant keeps the lease that it has, whatever the budget has become.
    if (request.lease_ms() > claim->lifetime_ms()) {
      ASSIGN_OR_RETURN(const std::optional<Budget> budget, BudgetOf(caller));
      RETURN_IF_ERROR(CheckLease(request.lease_ms(), PointerTo(budget), user));
    }
    renewed = BeginLease(hold, *claim, request.lease_ms() != 0 ? request.lease_ms() : claim->lifetime_ms());
  }
  if (absl::IsNotFound(renewed.status())) {
    return absl::NotFoundError(absl::StrCat("there is no grant ", request.grant(),
                                            "; its lease has ended, or it was returned: ask for a grant"));
  }
  if (!renewed.ok()) return renewed.status();
  grants::v1::RenewResponse response;
  response.set_expires_in_ms(renewed->expires_in_ms());
  return response;
}

absl::StatusOr<grants::v1::ReturnResponse> Desk::Return(const Caller& caller,
                                                        const grants::v1::ReturnRequest& request) {
  RETURN_IF_ERROR(CheckOwner(request.grant(), caller.uid));
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, keeper_.Acquire(request.grant()));
  RETURN_IF_ERROR(End(hold));
  spdlog::info("grant_returned claim={} engine={}", hold.key(), kGrantsEngine);
  return grants::v1::ReturnResponse();
}

absl::StatusOr<grants::v1::ListResponse> Desk::List(const Caller& caller, const grants::v1::ListRequest&) {
  ASSIGN_OR_RETURN(const std::optional<Budget> budget, BudgetOf(caller));
  ASSIGN_OR_RETURN(const std::vector<v1::Claim> claims, keeper_.List(kGrantsEngine));
  grants::v1::ListResponse response;
  for (const v1::Claim& claim : claims)
    if (OwnerOf(claim.key()) == caller.uid) *response.add_grants() = StateOf(claim);
  if (budget) *response.mutable_budget() = MessageOf(*budget);
  return response;
}

absl::Status Desk::End(const ClaimKeeper::Hold& hold) {
  RETURN_IF_ERROR(keeper_.Delete(hold, kGrantsEngine));
  watch_.Remove(hold.key());
  return absl::OkStatus();
}

absl::Status Desk::EndOfProcess(const std::string& key) {
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, keeper_.Acquire(key));
  if (!watch_.HasEnded(key)) return absl::OkStatus();
  RETURN_IF_ERROR(End(hold));
  spdlog::info("grant_deleted claim={} engine={} reason=\"its process has ended\"", key, kGrantsEngine);
  return absl::OkStatus();
}

absl::Status Desk::ReconcileOne(const v1::Claim& claim, const ProcessName& process) {
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, keeper_.Acquire(claim.key()));
  if (!watch_.Has(claim.key())) {
    ASSIGN_OR_RETURN(const std::optional<v1::Claim> now, Find(claim.key()));
    if (!now || ProcessOf(*now) != process) return absl::OkStatus();  // it was returned meanwhile
    absl::StatusOr<UniqueFd> found = OpenProcess(process);
    const absl::Status watched = found.ok() ? watch_.Add(claim.key(), process, *found) : found.status();
    if (absl::IsNotFound(watched) || absl::IsFailedPrecondition(watched)) {
      RETURN_IF_ERROR(End(hold));
      keeper_.counters().AddCorrection(kGrantsEngine, "claim_deleted");
      spdlog::warn("grant_deleted claim={} engine={} reason=\"{}\"", claim.key(), kGrantsEngine,
                   std::string(watched.message()));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(watched);
  }
  if (watch_.HasEnded(claim.key())) return End(hold);
  if (!AgentRenews(claim)) return absl::OkStatus();
  const absl::Status renewed = BeginLease(hold, claim, claim.lifetime_ms()).status();
  return absl::IsNotFound(renewed) ? absl::OkStatus() : renewed;
}

absl::Status Desk::ForgetEnded(const std::vector<v1::Claim>& claims) {
  for (const std::string& key : watch_.Keys()) {
    if (std::ranges::find(claims, key, &v1::Claim::key) != claims.end()) continue;
    ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, keeper_.Acquire(key));
    ASSIGN_OR_RETURN(const std::optional<v1::Claim> claim, Find(key));  // it may be newer than `claims`
    if (!claim) watch_.Remove(key);
  }
  return absl::OkStatus();
}

absl::Status Desk::Reconcile(const std::vector<v1::Claim>& claims) {
  absl::Status first;
  for (const v1::Claim& claim : claims) {
    const std::optional<ProcessName> process = ProcessOf(claim);
    if (process && OwnerOf(claim.key())) first.Update(ReconcileOne(claim, *process));
  }
  first.Update(ForgetEnded(claims));
  return first;
}

}  // namespace xpud::agent
