#include "deploy/agent/kubernetes/dra_driver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/kubernetes/container_labels.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

std::set<std::string> UidsOf(const std::vector<Allocation::Pod>& pods) {
  std::set<std::string> uids;
  for (const Allocation::Pod& pod : pods) uids.insert(pod.uid);
  return uids;
}

ClaimName NameOf(const v1::Claim& claim) {
  return {LabelOf(claim, kNamespaceLabel), LabelOf(claim, "claim_uid"), LabelOf(claim, "claim")};
}

CdiClaim FileOf(const Allocation& allocation, const v1::Claim& claim) {
  const std::set<std::string> pods = UidsOf(allocation.pods);
  return {.uid = allocation.uid,
          .name_space = allocation.name_space,
          .name = allocation.name,
          .pods = {pods.begin(), pods.end()},
          .door = claim.door()};
}

}  // namespace

v1::Claim DraDriver::Labelled(const Allocation& allocation) const {
  v1::Claim claim = ClaimOf(allocation);
  const MutexLock lock(mutex_);
  if (const auto found = containers_.find(allocation.uid); found != containers_.end())
    (*claim.mutable_labels())[kContainerLabel] = found->second;
  return claim;
}

absl::StatusOr<std::optional<Allocation>> DraDriver::Ask(const ClaimName& name) {
  const auto object = parts_.api_server->Get(ClaimPath(name.name_space, name.name));
  if (absl::IsNotFound(object.status())) return std::nullopt;
  RETURN_IF_ERROR(object.status());
  absl::StatusOr<Allocation> allocation = ReadAllocation(*object, name.uid, parts_.node);
  // It was created anew, or is not allocated any more.
  if (absl::IsFailedPrecondition(allocation.status())) return std::nullopt;
  RETURN_IF_ERROR(allocation.status());
  if (!allocation->reserved) return std::nullopt;
  return std::optional(*std::move(allocation));
}

absl::Status DraDriver::Write(const CdiClaim& file) {
  const absl::Status status = parts_.files->Write(file);
  parts_.conditions->Set(kCdiCondition, status);
  return status;
}

absl::StatusOr<DraDriver::Prepared> DraDriver::Make(const ClaimKeeper::Hold& hold,
                                                    const Allocation& allocation) {
  const absl::StatusOr<v1::Claim> claim = parts_.keeper->Ensure(hold, Labelled(allocation));
  if (absl::IsResourceExhausted(claim.status())) parts_.was_refused();
  RETURN_IF_ERROR(claim.status());
  RETURN_IF_ERROR(Write(FileOf(allocation, *claim)));
  return Prepared{allocation.results, CdiFiles::IdOf(allocation.uid)};
}

absl::StatusOr<DraDriver::Prepared> DraDriver::Prepare(const ClaimName& name) {
  RETURN_IF_ERROR(CheckClaimName(name));
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, parts_.keeper->Acquire(KeyOf(name.uid)));
  ASSIGN_OR_RETURN(const Json object, parts_.api_server->Get(ClaimPath(name.name_space, name.name)));
  ASSIGN_OR_RETURN(const Allocation allocation, ReadAllocation(object, name.uid, parts_.node));
  if (parts_.tombstones->IsLate(name.uid, UidsOf(allocation.pods))) {
    return absl::FailedPreconditionError(
        absl::StrCat("the claim ", name.name_space, "/", name.name,
                     " was unprepared after this call was made, and no other pod has it since"));
  }
  ASSIGN_OR_RETURN(Prepared prepared, Make(hold, allocation));
  RETURN_IF_ERROR(parts_.tombstones->Remove(name.uid));
  parts_.was_prepared();
  return prepared;
}

absl::Status DraDriver::Remove(const ClaimKeeper::Hold& hold, const std::string& uid) {
  {
    const MutexLock lock(mutex_);
    containers_.erase(uid);
  }
  RETURN_IF_ERROR(parts_.files->Remove(uid));
  return parts_.keeper->Delete(hold, kEngineName);
}

absl::Status DraDriver::Unprepare(const ClaimName& name) {
  // The namespace and the name are not used, so what is wrong with them keeps nothing alive.
  if (!IsUid(name.uid)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, parts_.keeper->Acquire(KeyOf(name.uid)));
  const absl::StatusOr<CdiClaim> file = parts_.files->Read(name.uid);
  // First: if the agent ends after it, the reconciliation removes the rest.
  RETURN_IF_ERROR(parts_.tombstones->Add(
      name.uid, file.ok() ? std::set(file->pods.begin(), file->pods.end()) : std::set<std::string>()));
  return Remove(hold, name.uid);
}

// The lists were read before. What calls of the kubelet have changed since is known all the same: what they
// removed has a tombstone, and what they made is found as it should be.
absl::Status DraDriver::ReconcileOne(const ClaimName& name, const v1::Claim* claim, absl::Status& away) {
  RETURN_IF_ERROR(CheckClaimName(name));
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, parts_.keeper->Acquire(KeyOf(name.uid)));
  const absl::StatusOr<CdiClaim> file = parts_.files->Read(name.uid);
  Counters& counters = parts_.keeper->counters();
  using Wanted = absl::StatusOr<std::optional<Allocation>>;
  Wanted wanted = away.ok() ? Ask(name) : Wanted(away);
  if (absl::IsUnavailable(wanted.status())) away = wanted.status();
  if (parts_.tombstones->Contains(name.uid)) wanted = std::nullopt;
  if (wanted.ok() && !wanted->has_value()) {
    spdlog::info("removed engine=kubernetes claim={}/{} uid={} reason=\"nobody on this node has it\"",
                 name.name_space, name.name, name.uid);
    if (claim != nullptr) counters.AddCorrection(kEngineName, "claim_deleted");
    if (!absl::IsNotFound(file.status())) counters.AddCorrection(kEngineName, "file_deleted");
    return Remove(hold, name.uid);
  }
  if (!wanted.ok()) {
    // The claim stays as it is; its file can be written from what is known.
    if (claim != nullptr && !file.ok()) {
      counters.AddCorrection(kEngineName, "file_written");
      RETURN_IF_ERROR(Write({name.uid, name.name_space, name.name, {}, claim->door()}));
    }
    return wanted.status();
  }
  const v1::Claim right = Labelled(**wanted);
  if (claim != nullptr && IsAsWanted(*claim, right) && file.ok() && *file == FileOf(**wanted, *claim))
    return absl::OkStatus();
  if (claim == nullptr) counters.AddCorrection(kEngineName, "claim_made");
  ASSIGN_OR_RETURN(const v1::Claim made, parts_.keeper->Ensure(hold, right));
  const CdiClaim content = FileOf(**wanted, made);
  if (file.ok() && *file == content) return absl::OkStatus();
  counters.AddCorrection(kEngineName, "file_written");
  return Write(content);
}

absl::Status DraDriver::Mend(const CdiFiles::Unreadable& file, bool has_claim) {
  if (has_claim) return absl::OkStatus();  // it is written anew
  spdlog::warn("cdi_file_unreadable engine=kubernetes file={} reason=\"{}\"", file.file, file.reason);
  if (file.uid.empty()) return absl::OkStatus();  // not one of ours
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, parts_.keeper->Acquire(KeyOf(file.uid)));
  // It may have been written meanwhile.
  if (const auto now = parts_.files->Read(file.uid); now.ok() || absl::IsNotFound(now.status()))
    return absl::OkStatus();
  parts_.keeper->counters().AddCorrection(kEngineName, "file_deleted");
  return parts_.files->Remove(file.uid);
}

absl::Status DraDriver::Reconcile(const std::vector<v1::Claim>& claims) {
  struct Found {
    ClaimName name;
    const v1::Claim* claim;  // null: there is only a file
  };
  std::map<std::string, Found> found;  // by uid
  for (const v1::Claim& claim : claims) {
    ClaimName name = NameOf(claim);
    if (IsUid(name.uid) && KeyOf(name.uid) == claim.key()) {
      found.emplace(name.uid, Found{name, &claim});
      // What an earlier agent has found out.
      const MutexLock lock(mutex_);
      if (const std::string text = LabelOf(claim, kContainerLabel); !text.empty())
        containers_.emplace(name.uid, text);
    } else {
      spdlog::warn("ignored engine=kubernetes claim={} reason=\"its labels are not those of this agent\"",
                   claim.key());
    }
  }
  absl::Status all;
  if (const auto files = parts_.files->List(); files.ok()) {
    for (const CdiClaim& file : files->claims)
      found.emplace(file.uid, Found{{file.name_space, file.uid, file.name}, nullptr});
    for (const CdiFiles::Unreadable& file : files->unreadable)
      all.Update(Mend(file, found.contains(file.uid)));
  } else {
    all.Update(files.status());
  }
  absl::Status away;  // why the API server does not answer: it is asked once, not for each claim
  for (const auto& [uid, each] : found) all.Update(ReconcileOne(each.name, each.claim, away));
  if (!found.empty()) LabelContainers();
  return all;
}

void DraDriver::NoteLook(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (reason == look_reason_) return;
  if (reason.empty())
    spdlog::info("containers_known engine=kubernetes");
  else
    spdlog::info("containers_unknown engine=kubernetes reason=\"{}\"", reason);
  look_reason_ = reason;
}

absl::Status DraDriver::SetContainer(const v1::Claim& listed, const std::string& text) {
  if (LabelOf(listed, kContainerLabel) == text) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, parts_.keeper->Acquire(listed.key()));
  ASSIGN_OR_RETURN(const std::vector<v1::Claim> claims, parts_.keeper->List(kEngineName));
  const auto now = std::ranges::find(claims, listed.key(), &v1::Claim::key);
  if (now == claims.end()) return absl::OkStatus();  // it was unprepared meanwhile
  v1::Claim changed;
  changed.set_key(now->key());
  *changed.mutable_labels() = now->labels();
  (*changed.mutable_labels())[kContainerLabel] = text;
  const auto made = parts_.keeper->Change(hold, changed, {"labels"});
  if (absl::IsNotFound(made.status())) return absl::OkStatus();
  RETURN_IF_ERROR(made.status());
  spdlog::info("labelled engine=kubernetes claim={} container={}", now->key(), text);
  const MutexLock lock(mutex_);
  containers_[LabelOf(*now, "claim_uid")] = text;
  return absl::OkStatus();
}

bool DraDriver::LabelContainers() {
  const auto claims = parts_.keeper->List(kEngineName);
  if (!claims.ok()) return false;
  const auto look = parts_.containers->List();
  NoteLook(look.ok() ? "" : PrintableText(std::string(look.status().message()), 500));
  if (!look.ok()) return false;
  bool all = true;
  for (const v1::Claim& claim : *claims) {
    const auto found = look->claims.find(LabelOf(claim, "claim_uid"));
    if (found == look->claims.end()) {
      all = all && claim.labels().contains(kContainerLabel);
    } else if (const absl::Status set = SetContainer(claim, ContainersText(found->second)); !set.ok()) {
      spdlog::warn("not_labelled engine=kubernetes claim={} reason=\"{}\"", claim.key(),
                   std::string(set.message()));
      all = false;
    }
  }
  return all;
}

}  // namespace xpud::agent::kubernetes
