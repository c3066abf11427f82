// Slurm as an engine: each job with gres/xpud on this node has a claim, "slurm-JOBID", with the share that
// the controller has allocated. Slurm's prolog and epilog ask for it by slurm.proto. What should be there is
// known from the controller; the engine keeps in memory what only the prolog knows, the user's options.
// Thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/daemon_link.h"
#include "deploy/agent/core/engine.h"
#include "deploy/agent/grants/turns.h"
#include "deploy/agent/slurm/job_claim.h"
#include "deploy/agent/slurm/jobs.h"
#include "deploy/agent/slurm/slurm.pb.h"
#include "proto/base/mutex.h"

namespace xpud::agent::slurm {

class Slurm final : public Engine {
 public:
  struct Options {
    ClaimKeeper* keeper;  // neither is null, and both outlive the engine
    DaemonLink* daemon;
    Jobs::Options jobs;
    Limits limits;
  };
  // How often the engine looks whether jobs are suspended, while jobs have claims.
  static constexpr std::chrono::milliseconds kSuspendPeriod{4'000};

  static absl::StatusOr<std::unique_ptr<Slurm>> Start(Options options);
  // Waits for calls that run. Leaves the claims in place.
  ~Slurm() override;
  Slurm(const Slurm&) = delete;
  Slurm& operator=(const Slurm&) = delete;

  // The calls of slurm.proto, with the errors that it lists.
  absl::StatusOr<xpud::slurm::v1::BeginResponse> Begin(const xpud::slurm::v1::BeginRequest& request);
  absl::StatusOr<xpud::slurm::v1::EndResponse> End(const xpud::slurm::v1::EndRequest& request);
  // Where calls wait for their turn: those of a job run one after the other.
  Turns& turns() { return *turns_; }

  std::string_view name() const override { return kSlurmEngine; }
  absl::Status Reconcile(const std::vector<v1::Claim>& claims) override;

 private:
  using Clock = std::chrono::steady_clock;
  // What is remembered of a job until it leaves the node.
  struct Known {
    std::optional<v1::Claim> claim = {};  // that it should have; nullopt: none
    Clock::time_point changed = {};       // when a call began or ended it
    bool failed = false;                  // its last Begin has failed, and may have left a claim
    bool suspended = false;               // the claim is paused because the job is suspended
  };

  explicit Slurm(Options options);
  absl::StatusOr<xpud::slurm::v1::BeginResponse> BeginHeld(const ClaimKeeper::Hold& hold,
                                                           const xpud::slurm::v1::BeginRequest& request);
  absl::StatusOr<v1::Claim> Make(const ClaimKeeper::Hold& hold, const v1::Claim& claim);
  // `began`: when the list was asked for. What calls have changed since is newer than the list.
  absl::Status Remove(uint32_t job, const std::string& key, Clock::time_point began);
  // The claim of a job of which nothing is known, with the default options; nullopt: it has none.
  absl::StatusOr<std::optional<v1::Claim>> AskFor(uint32_t job, uint32_t uid);
  absl::Status MakeAgain(uint32_t job, uint32_t uid, Clock::time_point began);
  void Remember(uint32_t job, std::optional<v1::Claim> claim, bool failed = false);
  std::optional<Known> Find(uint32_t job);
  void ForgetOthers(const std::map<uint32_t, ListedJob>& listed, Clock::time_point began);

  // Of the engine's thread: pauses the claims of jobs whose processes are all stopped, and resumes those that
  // it has paused.
  void WatchSuspended();
  // Waits for a period, then until a job has a claim. Returns false if the engine ends.
  bool WaitForClaims();
  // The claims that have sessions, all of stopped processes. SIGSTOP is how Slurm suspends a job.
  absl::StatusOr<std::set<std::string>> StoppedClaims();
  absl::Status SetSuspended(uint32_t job, bool suspended);

  const Options options_;
  const Jobs jobs_;
  std::unique_ptr<Turns> turns_;
  Mutex mutex_;
  CondVar wake_;
  std::map<uint32_t, Known> known_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread suspended_;
};

}  // namespace xpud::agent::slurm
