#include "deploy/agent/kubernetes/device_plugin.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/kubernetes/container_labels.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr std::chrono::milliseconds kListPause{200};

// Held while slots change owners, so that an Allocate and a reconciliation do not act on one claim at once.
// It is no claim's key, because those are longer.
constexpr char kAllSlots[] = "dp-slots";

bool Overlap(const SlotSet& left, const SlotSet& right) {
  return std::ranges::any_of(left, [&](const Slot& slot) { return right.contains(slot); });
}

// A key that no other claim has had: a container may still have the folder of an older claim of the slots.
std::string NewKey(const SlotSet& slots) {
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  return absl::StrCat("dp-", slots.begin()->device, "-", slots.begin()->index, "-",
                      absl::Hex(number, absl::kZeroPad16));
}

const ContainerSlots* Find(const std::vector<ContainerSlots>& containers, const SlotSet& slots) {
  const auto found = std::ranges::find(containers, slots, &ContainerSlots::slots);
  return found == containers.end() ? nullptr : &*found;
}

// What an engine sets of a claim that the daemon has listed.
v1::Claim WithoutAnswers(v1::Claim claim) {
  claim.clear_kept();
  claim.clear_door();
  claim.clear_user_door();
  claim.clear_expires_in_ms();
  claim.clear_sessions();
  claim.clear_memory_bytes();
  claim.clear_busy_ns();
  claim.clear_ends();
  return claim;
}

}  // namespace

std::chrono::seconds DevicePlugin::period() const {
  const MutexLock lock(mutex_);
  const bool is_settled = std::ranges::all_of(known_, [](const auto& each) {
    return !each.second.missed_since && !LabelOf(each.second.claim, kPodLabel).empty();
  });
  return is_settled ? kPeriod : kShortPeriod;
}

absl::StatusOr<Inventory> DevicePlugin::Devices() const {
  Inventory inventory = parts_.inventory->WaitForChange(Inventory(), ClaimKeeper::kPatience);
  if (inventory.devices.empty()) return absl::UnavailableError("the daemon has not answered yet");
  return inventory;
}

absl::StatusOr<std::vector<v1::Claim>> DevicePlugin::ListPatiently() {
  const auto end = Clock::now() + ClaimKeeper::kPatience;
  while (true) {
    auto claims = parts_.keeper->List(kDevicePluginEngine);
    if (claims.ok() || !DaemonLink::IsLost(claims.status()) || Clock::now() > end) return claims;
    std::this_thread::sleep_for(kListPause);
  }
}

absl::StatusOr<std::string> DevicePlugin::Make(const v1::Claim& wanted) {
  v1::Claim claim = wanted;
  claim.set_key(NewKey(SlotsOf(claim)));
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, parts_.keeper->Acquire(claim.key()));
  const absl::StatusOr<v1::Claim> made = parts_.keeper->Ensure(hold, claim);
  if (absl::IsResourceExhausted(made.status())) parts_.inventory->Refresh();
  RETURN_IF_ERROR(made.status());
  const MutexLock lock(mutex_);
  known_[made->key()] = {*made, std::nullopt};
  return made->door();
}

absl::StatusOr<std::string> DevicePlugin::AllocateOne(const v1::Claim& wanted) {
  const SlotSet slots = SlotsOf(wanted);
  ASSIGN_OR_RETURN(const std::vector<v1::Claim> claims, ListPatiently());
  for (const v1::Claim& claim : claims) {
    const SlotSet others = SlotsOf(claim);
    if (!Overlap(others, slots)) continue;
    if (others == slots && LabelOf(claim, kPodLabel).empty() && claim.sessions() == 0) {
      Note(claim, /*is_listed=*/true);  // or will be soon
      return claim.door();
    }
    spdlog::info("removed engine=device-plugin claim={} slots={} reason=\"the kubelet gives its slots anew\"",
                 claim.key(), SlotsText(others));
    RETURN_IF_ERROR(Delete(claim.key()));
  }
  return Make(wanted);
}

absl::StatusOr<std::vector<std::string>> DevicePlugin::Allocate(const std::vector<SlotSet>& containers) {
  ASSIGN_OR_RETURN(const Inventory inventory, Devices());
  std::vector<v1::Claim> wanted;
  for (const SlotSet& slots : containers) {
    ASSIGN_OR_RETURN(v1::Claim claim, ClaimOf(slots, inventory, parts_.slots));
    wanted.push_back(std::move(claim));
  }
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold all_slots, parts_.keeper->Acquire(kAllSlots));
  std::vector<std::string> doors;
  for (const v1::Claim& claim : wanted) {
    ASSIGN_OR_RETURN(std::string door, AllocateOne(claim));
    doors.push_back(std::move(door));
  }
  parts_.has_allocated();
  return doors;
}

absl::Status DevicePlugin::Delete(const std::string& key) {
  {
    const MutexLock lock(mutex_);
    known_.erase(key);
  }
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, parts_.keeper->Acquire(key));
  return parts_.keeper->Delete(hold, kDevicePluginEngine);
}

absl::Status DevicePlugin::SetLabels(const v1::Claim& claim, const ContainerSlots& container) {
  v1::Claim changed = WithoutAnswers(claim);
  SetContainer(changed, container);
  const auto& labels = changed.labels();
  if (std::ranges::all_of(
          labels, [&](const auto& label) { return LabelOf(claim, label.first.c_str()) == label.second; }))
    return absl::OkStatus();
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold hold, parts_.keeper->Acquire(claim.key()));
  const auto made = parts_.keeper->Change(hold, changed, {"labels"});
  if (absl::IsNotFound(made.status())) return absl::OkStatus();  // deleted since the list was read
  RETURN_IF_ERROR(made.status());
  spdlog::info("labelled engine=device-plugin claim={} slots={} pod={}/{} container={}", claim.key(),
               SlotsText(container.slots), labels.at(kNamespaceLabel), labels.at(kPodLabel),
               labels.at(kContainerLabel));
  const MutexLock lock(mutex_);
  known_[claim.key()] = {*made, std::nullopt};
  return absl::OkStatus();
}

void DevicePlugin::Note(const v1::Claim& claim, bool is_listed) {
  const MutexLock lock(mutex_);
  Known& known = known_[claim.key()];
  known.claim = claim;
  if (is_listed) known.missed_since.reset();
}

absl::Status DevicePlugin::Miss(const v1::Claim& claim, Clock::time_point look) {
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold all_slots, parts_.keeper->Acquire(kAllSlots));
  {
    const MutexLock lock(mutex_);
    const auto known = known_.find(claim.key());
    if (known == known_.end()) return absl::OkStatus();  // deleted since the list was read
    std::optional<Clock::time_point>& since = known->second.missed_since;
    if (!since) since = look;
    if (look - *since < kMinBetweenLooks || claim.sessions() != 0) return absl::OkStatus();
  }
  spdlog::info("removed engine=device-plugin claim={} slots={} reason=\"no container has its slots\"",
               claim.key(), SlotsText(SlotsOf(claim)));
  parts_.keeper->counters().AddCorrection(kDevicePluginEngine, "claim_deleted");
  return Delete(claim.key());
}

bool DevicePlugin::LacksOne(const std::vector<v1::Claim>& claims) const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(known_, [&](const auto& each) {
    return std::ranges::find(claims, each.first, &v1::Claim::key) == claims.end();
  });
}

absl::Status DevicePlugin::MakeLost(const PodResources::Look& look) {
  ASSIGN_OR_RETURN(const ClaimKeeper::Hold all_slots, parts_.keeper->Acquire(kAllSlots));
  ASSIGN_OR_RETURN(const std::vector<v1::Claim> claims, parts_.keeper->List(kDevicePluginEngine));
  std::vector<v1::Claim> lost;
  {
    const MutexLock lock(mutex_);
    for (auto at = known_.begin(); at != known_.end();) {
      const v1::Claim& claim = at->second.claim;
      const SlotSet slots = SlotsOf(claim);
      const bool is_there = std::ranges::find(claims, claim.key(), &v1::Claim::key) != claims.end();
      const bool is_taken =
          std::ranges::any_of(claims, [&](const v1::Claim& other) { return Overlap(SlotsOf(other), slots); });
      const bool is_lost = !is_there && !is_taken && Find(look.containers, slots) != nullptr;
      if (is_lost) lost.push_back(WithoutAnswers(claim));
      const bool may_be_lost = !is_there && !is_taken && !look.is_complete;
      at = is_there || is_lost || may_be_lost ? std::next(at) : known_.erase(at);
    }
  }
  absl::Status all;
  for (const v1::Claim& claim : lost) {
    parts_.keeper->counters().AddCorrection(kDevicePluginEngine, "claim_made");
    const auto hold = parts_.keeper->Acquire(claim.key());
    all.Update(hold.ok() ? parts_.keeper->Ensure(*hold, claim).status() : hold.status());
  }
  return all;
}

absl::Status DevicePlugin::Reconcile(const std::vector<v1::Claim>& claims) {
  const Clock::time_point began = Clock::now();
  ASSIGN_OR_RETURN(const PodResources::Look look, pods_.List());
  absl::Status all;
  for (const v1::Claim& claim : claims) {
    const SlotSet slots = SlotsOf(claim);
    const ContainerSlots* container = Find(look.containers, slots);
    const bool is_listed = std::ranges::any_of(
        look.containers, [&](const ContainerSlots& each) { return Overlap(each.slots, slots); });
    Note(claim, is_listed);
    if (container != nullptr) {
      all.Update(SetLabels(claim, *container));
    } else if (!is_listed && look.is_complete) {
      all.Update(Miss(claim, began));
    }
  }
  if (LacksOne(claims)) all.Update(MakeLost(look));
  return all;
}

}  // namespace xpud::agent::kubernetes
