// Makes the daemon have the claims that engines want. It is the only part of the agent that creates, changes and
// deletes claims, and touches only those with this agent's label. Thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/core/counters.h"
#include "deploy/agent/core/daemon_link.h"
#include "proto/base/mutex.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent {

// The label whose value is the name of a claim's engine. Claims without it belong to others.
inline constexpr char kEngineLabel[] = "engine";

class ClaimKeeper {
 public:
  // How long an action retries what may succeed later. The kubelet waits 45 s for an answer.
  static constexpr std::chrono::seconds kPatience{30};

  // All must outlive the keeper.
  ClaimKeeper(DaemonLink& daemon, Counters& counters) : daemon_(daemon), counters_(counters) {}

  // Holds a key: until it is destroyed, other actions on the key wait. An engine holds a key while it changes a
  // claim and what belongs to it, such as a file, so that these stay consistent.
  class Hold {
   public:
    Hold(Hold&& other) noexcept : keeper_(std::exchange(other.keeper_, nullptr)), key_(std::move(other.key_)) {}
    ~Hold();
    const std::string& key() const { return key_; }

   private:
    friend class ClaimKeeper;
    Hold(ClaimKeeper* keeper, std::string key) : keeper_(keeper), key_(std::move(key)) {}
    ClaimKeeper* keeper_;
    std::string key_;
  };
  // Waits until nobody else holds the key. Returns DeadlineExceeded after kPatience.
  absl::StatusOr<Hold> Acquire(const std::string& key);

  // Ensures that the daemon has this claim, and returns it with its doors. REQUIRES: `hold` is the claim's key, and
  // the claim has the engine's label. A claim of the engine that differs is changed. Returns AlreadyExists if the
  // key is another's claim, ResourceExhausted with the sums if the daemon cannot guarantee it, InvalidArgument,
  // FailedPrecondition, and Unavailable if the daemon has not answered for kPatience.
  absl::StatusOr<v1::Claim> Ensure(const Hold& hold, const v1::Claim& claim);
  // Ensures that the daemon has no such claim. Returns OK if there is none, FailedPrecondition if it is another's,
  // and Unavailable.
  absl::Status Delete(const Hold& hold, std::string_view engine);
  // The claims of an engine.
  absl::StatusOr<std::vector<v1::Claim>> List(std::string_view engine);

  Counters& counters() { return counters_; }

 private:
  void Release(const std::string& key);

  DaemonLink& daemon_;
  Counters& counters_;
  Mutex mutex_;
  CondVar released_;
  std::map<std::string, int> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent
