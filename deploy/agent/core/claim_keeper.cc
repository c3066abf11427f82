#include "deploy/agent/core/claim_keeper.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{10}, kMaxPause{1000};

// The fields that an engine sets, but for the key and the lifetime.
constexpr const char* kFields[] = {"devices",
                                   "class",
                                   "weight",
                                   "time_least",
                                   "time_most",
                                   "memory_least_bytes",
                                   "memory_most_bytes",
                                   "sessions_most",
                                   "labels",
                                   "holders",
                                   "door_uid",
                                   "paused",
                                   "drained"};

std::string_view EngineOf(const v1::Claim& claim) {
  const auto label = claim.labels().find(kEngineLabel);
  return label == claim.labels().end() ? std::string_view() : std::string_view(label->second);
}

v1::UpdateClaimRequest RequestFor(const v1::Claim& claim) {
  v1::UpdateClaimRequest request;
  *request.mutable_claim() = claim;
  return request;
}

const v1::Claim* Find(const v1::ListClaimsResponse& list, const std::string& key) {
  const auto found = std::ranges::find(list.claims(), key, &v1::Claim::key);
  return found == list.claims().end() ? nullptr : &*found;
}

// The pauses between attempts, until an action's patience is over.
class Attempts {
 public:
  // Returns false, without a pause, if there should be no further attempt.
  bool Pause() {
    if (Clock::now() + pause_ > end_) return false;
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, kMaxPause);
    return true;
  }

 private:
  const Clock::time_point end_ = Clock::now() + ClaimKeeper::kPatience;
  std::chrono::milliseconds pause_ = kFirstPause;
};

}  // namespace

bool IsAsWanted(const v1::Claim& there, const v1::Claim& wanted) {
  constexpr uint32_t kWhole = 10'000;
  v1::Claim expected = wanted;
  if (expected.class_().empty()) expected.set_class_("interactive");
  if (expected.weight() == 0) expected.set_weight(100);
  if (expected.time_most() == 0) expected.set_time_most(kWhole);
  const google::protobuf::Descriptor& type = *v1::Claim::descriptor();
  google::protobuf::util::MessageDifferencer differencer;
  std::vector<const google::protobuf::FieldDescriptor*> fields = {type.FindFieldByName("lifetime_ms")};
  for (const char* name : kFields) fields.push_back(type.FindFieldByName(name));
  return differencer.CompareWithFields(expected, there, fields, fields);
}

absl::StatusOr<ClaimKeeper::Hold> ClaimKeeper::Acquire(const std::string& key) {
  const auto end = Clock::now() + kPatience;
  const MutexLock lock(mutex_);
  while (held_.contains(key)) {
    if (Clock::now() >= end)
      return absl::DeadlineExceededError(
          absl::StrCat("another action on the claim ", key, " has not ended for ", kPatience.count(), " s"));
    released_.WaitFor(mutex_, end - Clock::now());
  }
  held_.insert(key);
  return Hold(this, key);
}

void ClaimKeeper::Release(const std::string& key) {
  const MutexLock lock(mutex_);
  held_.erase(key);
  released_.NotifyAll();
}

absl::StatusOr<v1::Claim> ClaimKeeper::Update(const v1::Claim& there, const v1::Claim& claim) {
  v1::UpdateClaimRequest request = RequestFor(claim);
  for (const char* field : kFields) request.mutable_update_mask()->add_paths(field);
  if (claim.lifetime_ms() != there.lifetime_ms()) request.mutable_update_mask()->add_paths("lifetime_ms");
  return daemon_.With([&](control::Client& client) { return client.UpdateClaim(request); });
}

absl::StatusOr<v1::Claim> ClaimKeeper::Ensure(const Hold& hold, const v1::Claim& claim) {
  Attempts attempts;
  while (true) {
    auto made = daemon_.With([&](control::Client& client) { return client.CreateClaim(claim); });
    if (absl::IsAlreadyExists(made.status())) {
      const auto list =
          daemon_.With([](control::Client& client) { return client.ListClaims(/*only_granted=*/true); });
      if (!list.ok()) {
        made = list.status();
      } else if (const v1::Claim* there = Find(*list, hold.key()); there == nullptr || there->ends()) {
        // Another claim has one of the holders, or this one is being ended.
        if (there == nullptr && claim.holders_size() != 0) return made;
        made = absl::UnavailableError(made.status().message());
      } else if (EngineOf(*there) != EngineOf(claim)) {
        return absl::AlreadyExistsError(
            absl::StrCat("the key ", hold.key(), " is that of a claim which this agent did not make"));
      } else {
        made = Update(*there, claim);
        if (absl::IsNotFound(made.status())) made = absl::UnavailableError(made.status().message());
      }
    }
    if (made.ok() || !DaemonLink::IsLost(made.status()) || !attempts.Pause()) return made;
  }
}

absl::StatusOr<v1::Claim> ClaimKeeper::Change(const Hold& hold, const v1::Claim& claim,
                                              const std::vector<std::string>& fields) {
  ASSIGN_OR_RETURN(const std::vector<v1::Claim> claims, List(EngineOf(claim)));
  if (std::ranges::find(claims, hold.key(), &v1::Claim::key) == claims.end())
    return absl::NotFoundError(absl::StrCat("there is no claim ", hold.key()));
  v1::UpdateClaimRequest request = RequestFor(claim);
  for (const std::string& field : fields) request.mutable_update_mask()->add_paths(field);
  return daemon_.With([&](control::Client& client) { return client.UpdateClaim(request); });
}

absl::Status ClaimKeeper::Delete(const Hold& hold, std::string_view engine) {
  Attempts attempts;
  while (true) {
    const auto list =
        daemon_.With([](control::Client& client) { return client.ListClaims(/*only_granted=*/true); });
    absl::Status status = list.status();
    if (list.ok()) {
      const v1::Claim* there = Find(*list, hold.key());
      if (there == nullptr) return absl::OkStatus();
      if (EngineOf(*there) != engine)
        return absl::FailedPreconditionError(
            absl::StrCat("the claim ", hold.key(), " is not one that this agent made"));
      status =
          daemon_.With([&](control::Client& client) { return client.DeleteClaim(hold.key(), kPatience); })
              .status();
      if (absl::IsNotFound(status)) return absl::OkStatus();
      if (absl::IsDeadlineExceeded(status)) return status;
    }
    if (status.ok() || !DaemonLink::IsLost(status) || !attempts.Pause()) return status;
  }
}

absl::StatusOr<std::vector<v1::Claim>> ClaimKeeper::List(std::string_view engine) {
  ASSIGN_OR_RETURN(const v1::ListClaimsResponse list, daemon_.With([](control::Client& client) {
    return client.ListClaims(/*only_granted=*/true);
  }));
  std::vector<v1::Claim> claims;
  for (const v1::Claim& claim : list.claims()) {
    const bool is_its = engine.empty() ? !EngineOf(claim).empty() : EngineOf(claim) == engine;
    if (is_its && !claim.ends()) claims.push_back(claim);
  }
  return claims;
}

}  // namespace xpud::agent
