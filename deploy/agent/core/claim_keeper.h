// Makes the daemon have the claims that engines want. It is the only part of the agent that creates, changes
// and deletes claims, and it touches only those with the engine's label. Thread-safe.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/core/counters.h"
#include "deploy/agent/core/daemon_link.h"
#include "proto/base/mutex.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent {

// The label whose value is the name of a claim's engine. Claims without it belong to others.
inline constexpr char kEngineLabel[] = "engine";

// Whether the daemon's claim `there` grants what `wanted` says, whose unset fields mean the daemon's
// defaults.
bool IsAsWanted(const v1::Claim& there, const v1::Claim& wanted);

class ClaimKeeper {
 public:
  // How long an action retries what may succeed later, and waits for another action on its key. The kubelet
  // waits 45 s for an answer.
  static constexpr std::chrono::seconds kPatience{12};

  // Both must outlive the keeper.
  ClaimKeeper(DaemonLink& daemon, Counters& counters) : daemon_(daemon), counters_(counters) {}

  // Holds a key: until it is destroyed, other actions on the key wait. An engine holds a key while it changes
  // a claim and what belongs to it, such as a file, so that these stay consistent.
  class Hold {
   public:
    Hold(Hold&& other) noexcept
        : keeper_(std::exchange(other.keeper_, nullptr)), key_(std::move(other.key_)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (keeper_ != nullptr) keeper_->Release(key_);
    }
    const std::string& key() const { return key_; }

   private:
    friend class ClaimKeeper;
    Hold(ClaimKeeper* keeper, std::string key) : keeper_(keeper), key_(std::move(key)) {}

    ClaimKeeper* keeper_;
    std::string key_;
  };
  // Waits until nobody else holds the key. Returns DeadlineExceeded after kPatience.
  absl::StatusOr<Hold> Acquire(const std::string& key);

  // Ensures that the daemon has this claim, and returns it with its doors. A claim that is there and differs
  // is changed; its lifetime begins anew only if it differs. REQUIRES: `hold` is of the claim's key, and the
  // claim has the engine's label. Returns AlreadyExists if the key is another's claim, ResourceExhausted with
  // the sums if the daemon cannot guarantee it, InvalidArgument, FailedPrecondition, and Unavailable or
  // DeadlineExceeded if the daemon has not answered for kPatience.
  absl::StatusOr<v1::Claim> Ensure(const Hold& hold, const v1::Claim& claim);
  // Changes these fields of the engine's claim; "lifetime_ms" begins it anew. Returns NotFound if there is no
  // such claim.
  absl::StatusOr<v1::Claim> Change(const Hold& hold, const v1::Claim& claim,
                                   const std::vector<std::string>& fields);
  // Ensures that the daemon has no such claim of the engine. Waits up to kPatience until the memory of its
  // sessions is free; after DeadlineExceeded the sessions are still being ended. Returns OK if there is none,
  // and FailedPrecondition if the claim is another's.
  absl::Status Delete(const Hold& hold, std::string_view engine);

  // The claims of an engine; of all engines if it is empty. Those that are being ended are not among them.
  absl::StatusOr<std::vector<v1::Claim>> List(std::string_view engine);

  Counters& counters() { return counters_; }

 private:
  absl::StatusOr<v1::Claim> Update(const v1::Claim& there, const v1::Claim& claim);
  void Release(const std::string& key);

  DaemonLink& daemon_;
  Counters& counters_;
  Mutex mutex_;
  CondVar released_;
  std::set<std::string> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent
