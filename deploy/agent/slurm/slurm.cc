#include "deploy/agent/slurm/slurm.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::slurm {
namespace {

// Whether the kernel says that a process is stopped, as by SIGSTOP. False if it cannot be seen.
bool IsStopped(int32_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may contain anything
  return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'T';
}

bool IsSuspended(const v1::Claim& claim) { return claim.labels().contains(kSuspendedLabel); }

}  // namespace

Slurm::Slurm(Options options) : options_(std::move(options)), jobs_(options_.jobs) {}

absl::StatusOr<std::unique_ptr<Slurm>> Slurm::Start(Options options) {
  std::unique_ptr<Slurm> slurm(new Slurm(std::move(options)));
  ASSIGN_OR_RETURN(slurm->turns_, Turns::Start());
  ASSIGN_OR_RETURN(slurm->suspended_,
                   StartThread("xpud-suspended", [raw = slurm.get()] { raw->WatchSuspended(); }));
  return slurm;
}

Slurm::~Slurm() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    wake_.NotifyAll();
  }
  if (suspended_.joinable()) suspended_.join();
  if (turns_ != nullptr) turns_->End();
}

void Slurm::Remember(uint32_t job, std::optional<v1::Claim> claim, bool failed) {
  const MutexLock lock(mutex_);
  known_[job] = {.claim = std::move(claim), .changed = Clock::now(), .failed = failed};
  wake_.NotifyAll();
}

std::optional<Slurm::Known> Slurm::Find(uint32_t job) {
  const MutexLock lock(mutex_);
  const auto found = known_.find(job);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void Slurm::ForgetOthers(const std::map<uint32_t, ListedJob>& listed, Clock::time_point began) {
  const MutexLock lock(mutex_);
  std::erase_if(known_, [&](const auto& each) {
    const auto job = listed.find(each.first);
    return each.second.changed < began && (job == listed.end() || !job->second.holds);
  });
}

absl::StatusOr<v1::Claim> Slurm::Make(const ClaimKeeper::Hold& hold, const v1::Claim& claim) {
  ASSIGN_OR_RETURN(v1::Claim made, options_.keeper->Ensure(hold, claim));
  spdlog::info("claim_made claim={} engine={} share={} class={} memory={}", claim.key(), kSlurmEngine,
               claim.weight(), claim.class_(), claim.memory_least_bytes());
  return made;
}

absl::StatusOr<xpud::slurm::v1::BeginResponse> Slurm::Begin(const xpud::slurm::v1::BeginRequest& request) {
  if (request.job_id() == 0) return absl::InvalidArgumentError("job_id is 0; use the job's number");
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, options_.keeper->Acquire(KeyOf(request.job_id())));
  absl::StatusOr<xpud::slurm::v1::BeginResponse> response = BeginHeld(hold, request);
  // The job's tasks fail. It gets no claim later, which nobody would use.
  if (!response.ok()) Remember(request.job_id(), std::nullopt, /*failed=*/true);
  return response;
}

absl::StatusOr<xpud::slurm::v1::BeginResponse> Slurm::BeginHeld(
    const ClaimKeeper::Hold& hold, const xpud::slurm::v1::BeginRequest& request) {
  ASSIGN_OR_RETURN(const Job job, jobs_.Ask(request.job_id()));
  xpud::slurm::v1::BeginResponse response;
  response.set_share(job.share);
  if (job.share == 0) {
    // An earlier job of this number may have left its claim.
    const std::optional<Known> known = Find(request.job_id());
    if (known && known->claim) RETURN_IF_ERROR(options_.keeper->Delete(hold, kSlurmEngine));
    Remember(request.job_id(), std::nullopt);
    return response;
  }
  std::vector<std::string> warnings;
  const v1::Claim claim = ClaimOf(job, request, options_.limits, warnings);
  ASSIGN_OR_RETURN(const v1::Claim made, Make(hold, claim));
  Remember(request.job_id(), claim);
  response.set_folder(made.door());
  for (const std::string& warning : warnings) {
    spdlog::warn("option_limited claim={} engine={} reason=\"{}\"", hold.key(), kSlurmEngine, warning);
    response.add_warnings(warning);
  }
  return response;
}

absl::StatusOr<xpud::slurm::v1::EndResponse> Slurm::End(const xpud::slurm::v1::EndRequest& request) {
  const std::string key = KeyOf(request.job_id());
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, options_.keeper->Acquire(key));
  // Remembered first: a reconciliation whose list has the job does not make the claim again.
  const std::optional<Known> known = Find(request.job_id());
  Remember(request.job_id(), std::nullopt);
  // Jobs without a share must not wait for the daemon.
  if (known && !known->claim && !known->failed) return xpud::slurm::v1::EndResponse();
  if (absl::Status deleted = options_.keeper->Delete(hold, kSlurmEngine); !deleted.ok()) {
    Remember(request.job_id(), std::nullopt, /*failed=*/true);
    return deleted;
  }
  if (known && known->claim)
    spdlog::info("claim_deleted claim={} engine={} reason=\"its job ended\"", key, kSlurmEngine);
  return xpud::slurm::v1::EndResponse();
}

absl::Status Slurm::Remove(uint32_t job, const std::string& key, Clock::time_point began) {
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, options_.keeper->Acquire(key));
  if (const std::optional<Known> known = Find(job); known && known->changed >= began) return absl::OkStatus();
  RETURN_IF_ERROR(options_.keeper->Delete(hold, kSlurmEngine));
  options_.keeper->counters().AddCorrection(kSlurmEngine, "claim_deleted");
  spdlog::warn("claim_deleted claim={} engine={} reason=\"its job is not on this node\"", key, kSlurmEngine);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::Claim>> Slurm::AskFor(uint32_t job, uint32_t uid) {
  const absl::StatusOr<Job> asked = jobs_.Ask(job);
  if (absl::IsNotFound(asked.status()) || absl::IsFailedPrecondition(asked.status())) {
    spdlog::warn("ignored engine={} job={} reason=\"{}\"", kSlurmEngine, job,
                 std::string(asked.status().message()));
    return std::nullopt;
  }
  RETURN_IF_ERROR(asked.status());
  if (asked->share == 0) return std::nullopt;
  xpud::slurm::v1::BeginRequest request;
  request.set_job_id(job);
  request.set_uid(uid);
  std::vector<std::string> warnings;
  return ClaimOf(*asked, request, options_.limits, warnings);
}

absl::Status Slurm::MakeAgain(uint32_t job, uint32_t uid, Clock::time_point began) {
  const std::optional<Known> before = Find(job);
  if (before && (before->changed >= began || !before->claim)) return absl::OkStatus();
  std::optional<v1::Claim> wanted;
  if (before) {
    wanted = before->claim;
  } else {
    // An agent that has gone made it, or none did. This holds no key, so that a prolog does not wait for it.
    ASSIGN_OR_RETURN(wanted, AskFor(job, uid));
  }
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, options_.keeper->Acquire(KeyOf(job)));
  if (const std::optional<Known> now = Find(job); now && now->changed >= began) return absl::OkStatus();
  if (wanted) {
    RETURN_IF_ERROR(Make(hold, *wanted).status());
    options_.keeper->counters().AddCorrection(kSlurmEngine, "claim_made");
  }
  Remember(job, std::move(wanted));
  return absl::OkStatus();
}

absl::Status Slurm::Reconcile(const std::vector<v1::Claim>& claims) {
  const auto began = Clock::now();
  ASSIGN_OR_RETURN(const auto listed, jobs_.List());
  absl::Status first;
  std::set<uint32_t> have;
  for (const v1::Claim& claim : claims) {
    const std::optional<uint32_t> job = JobOf(claim.key());
    if (!job) {
      spdlog::warn("ignored engine={} claim={} reason=\"its key is no job's\"", kSlurmEngine, claim.key());
      continue;
    }
    have.insert(*job);
    if (const auto found = listed.find(*job); found == listed.end() || !found->second.holds) {
      first.Update(Remove(*job, claim.key(), began));
    } else if (!Find(*job)) {
      v1::Claim wanted = claim;  // that of an earlier agent
      wanted.mutable_labels()->erase(kSuspendedLabel);
      if (IsSuspended(claim)) wanted.set_paused(false);
      const MutexLock lock(mutex_);
      known_.emplace(*job,
                     Known{.claim = std::move(wanted), .changed = began, .suspended = IsSuspended(claim)});
      wake_.NotifyAll();
    }
  }
  for (const auto& [job, state] : listed)
    if (state.runs && !have.contains(job)) first.Update(MakeAgain(job, state.uid, began));
  ForgetOthers(listed, began);
  return first;
}

absl::StatusOr<std::set<std::string>> Slurm::StoppedClaims() {
  ASSIGN_OR_RETURN(const v1::ListSessionsResponse list,
                   options_.daemon->With([](control::Client& client) { return client.ListSessions(); }));
  std::set<std::string> have, run;
  for (const v1::Session& session : list.sessions()) {
    if (!session.has_claim()) continue;
    have.insert(session.claim());
    if (!run.contains(session.claim()) && !IsStopped(session.pid())) run.insert(session.claim());
  }
  for (const std::string& claim : run) have.erase(claim);
  return have;
}

absl::Status Slurm::SetSuspended(uint32_t job, bool suspended) {
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, options_.keeper->Acquire(KeyOf(job)));
  const std::optional<Known> known = Find(job);
  if (!known || !known->claim || known->suspended == suspended) return absl::OkStatus();
  v1::Claim claim = *known->claim;
  claim.set_paused(suspended);
  if (suspended) (*claim.mutable_labels())[kSuspendedLabel] = "yes";
  const absl::Status changed = options_.keeper->Change(hold, claim, {"paused", "labels"}).status();
  if (absl::IsNotFound(changed)) return absl::OkStatus();  // the reconciliation makes it again
  RETURN_IF_ERROR(changed);
  spdlog::info("claim_{} claim={} engine={}", suspended ? "paused" : "resumed", claim.key(), kSlurmEngine);
  const MutexLock lock(mutex_);
  if (const auto found = known_.find(job); found != known_.end()) found->second.suspended = suspended;
  return absl::OkStatus();
}

bool Slurm::WaitForClaims() {
  const MutexLock lock(mutex_);
  const auto has_claim = [](const auto& each) { return each.second.claim.has_value(); };
  const auto end = Clock::now() + kSuspendPeriod;
  while (!stops_ && Clock::now() < end) wake_.WaitFor(mutex_, end - Clock::now());
  while (!stops_ && std::ranges::none_of(known_, has_claim)) wake_.Wait(mutex_);
  return !stops_;
}

void Slurm::WatchSuspended() {
  while (WaitForClaims()) {
    const absl::StatusOr<std::set<std::string>> stopped = StoppedClaims();
    if (!stopped.ok()) continue;  // the daemon's condition says why
    std::map<uint32_t, bool> changes;
    {
      const MutexLock lock(mutex_);
      for (const auto& [job, known] : known_)
        if (known.claim && known.suspended != stopped->contains(known.claim->key()))
          changes[job] = !known.suspended;
    }
    for (const auto& [job, suspended] : changes) {
      if (const absl::Status set = SetSuspended(job, suspended); !set.ok())
        spdlog::warn("claim_unchanged claim={} engine={} reason=\"{}\"", KeyOf(job), kSlurmEngine,
                     std::string(set.message()));
    }
  }
}

}  // namespace xpud::agent::slurm
