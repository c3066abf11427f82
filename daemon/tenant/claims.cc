#include "daemon/tenant/claims.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xpud {
namespace {

std::string Size(uint64_t bytes) {
  constexpr double kGibibyte = uint64_t{1} << 30;
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / kGibibyte);
}

bool IsOn(const Claim& claim, uint32_t device) {
  return std::ranges::find(claim.devices, device) != claim.devices.end();
}

// The sums of what is given on a device.
struct Given {
  uint64_t guaranteed = 0;  // bytes, to claims
  uint64_t held = 0;        // bytes, by tenants beyond what they are guaranteed
  uint32_t time = 0;
};

Given GivenOn(uint32_t device, const std::vector<Claim>& claims, const DeviceRoom& room) {
  Given given;
  std::map<Tenant, uint64_t> least;
  for (const Claim& claim : claims) {
    if (!IsOn(claim, device)) continue;
    given.guaranteed += claim.memory_least;
    given.time += claim.time.least;
    least[claim.tenant()] = claim.memory_least;
  }
  for (const auto& [tenant, bytes] : room.held) {
    const auto found = least.find(tenant);
    const uint64_t own = found == least.end() ? 0 : found->second;
    given.held += bytes - std::min(bytes, own);
  }
  return given;
}

uint64_t Left(const Given& given, const DeviceRoom& room) {
  return room.memory - std::min(room.memory, given.guaranteed + given.held);
}

}  // namespace

Tenant Claims::TenantOf(const Tenant& holder) const {
  MutexLock lock(mutex_);
  const auto found = keys_.find(holder);
  return found == keys_.end() ? holder : Tenant::OfClaim(found->second);
}

TimeGrant Claims::GrantOf(const Tenant& tenant) const {
  const std::optional<Claim> claim = Find(tenant);
  return claim ? claim->time : TimeGrant{};
}

absl::Status Claims::Admit(const Tenant& tenant) {
  if (tenant.claim.empty()) return absl::OkStatus();
  MutexLock lock(mutex_);
  const auto found = entries_.find(tenant.claim);
  if (found == entries_.end() || found->second.ends)
    return absl::UnavailableError(absl::StrCat("the claim ", tenant.claim, " has ended"));
  Entry& entry = found->second;
  if (entry.claim.drained) {
    return absl::UnavailableError(absl::StrCat("the claim ", tenant.claim,
                                               " is drained: it takes no new sessions until an operator says "
                                               "`xpuctl claim resume ",
                                               tenant.claim, "`"));
  }
  if (entry.claim.sessions_most && entry.sessions >= *entry.claim.sessions_most) {
    return absl::ResourceExhaustedError(absl::StrCat("the claim ", tenant.claim, " has ", entry.sessions,
                                                     " sessions; ", *entry.claim.sessions_most,
                                                     " are allowed"));
  }
  ++entry.sessions;
  return absl::OkStatus();
}

void Claims::Leave(const Tenant& tenant) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(tenant.claim);
  if (found != entries_.end()) --found->second.sessions;
}

std::optional<Claim> Claims::Find(const Tenant& tenant) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(tenant.claim);
  if (found == entries_.end()) return std::nullopt;
  return found->second.claim;
}

bool Claims::empty() const {
  MutexLock lock(mutex_);
  return entries_.empty();
}

std::optional<Claims::Entry> Claims::Find(const std::string& key) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

std::vector<Claims::Entry> Claims::List() const {
  MutexLock lock(mutex_);
  std::vector<Entry> entries;
  for (const auto& [key, entry] : entries_) entries.push_back(entry);
  return entries;
}

absl::Status Claims::CheckHolders(const Claim& claim) const {
  MutexLock lock(mutex_);
  for (const Tenant& holder : claim.holders) {
    const auto found = keys_.find(holder);
    if (found == keys_.end() || found->second == claim.key) continue;
    return absl::AlreadyExistsError(absl::StrCat(holder.Text(), " has the claim ", found->second));
  }
  return absl::OkStatus();
}

void Claims::Put(const Claim& claim, uint64_t expires_ns) {
  MutexLock lock(mutex_);
  Entry& entry = entries_[claim.key];
  for (const Tenant& holder : entry.claim.holders) keys_.erase(holder);
  for (const Tenant& holder : claim.holders) keys_[holder] = claim.key;
  entry.claim = claim;
  entry.expires_ns = expires_ns;
}

void Claims::BeginEnd(const std::string& key) {
  MutexLock lock(mutex_);
  Entry& entry = entries_.at(key);
  entry.ends = true;
  for (const Tenant& holder : entry.claim.holders) keys_.erase(holder);
}

void Claims::Remove(const std::string& key) {
  MutexLock lock(mutex_);
  entries_.erase(key);
}

Guaranteeable LeftOn(uint32_t device, const std::vector<Claim>& claims, const DeviceRoom& room) {
  const Given given = GivenOn(device, claims, room);
  return {.memory = Left(given, room), .time = kMaxGuaranteedTime - std::min(kMaxGuaranteedTime, given.time)};
}

absl::Status CheckGuarantees(const Claim& wanted, const std::vector<Claim>& claims,
                             const std::vector<DeviceRoom>& rooms) {
  for (const uint32_t device : wanted.devices) {
    DeviceRoom others = rooms[device];
    others.held.erase(wanted.tenant());  // what it holds is the first part of what it is guaranteed
    const Given given = GivenOn(device, claims, others);
    if (wanted.memory_least > Left(given, others)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "device ", device, ": ", Size(wanted.memory_least), " are wanted, and ", Size(Left(given, others)),
          " can be guaranteed: of ", Size(others.memory), ", claims are guaranteed ", Size(given.guaranteed),
          " and tenants hold ", Size(given.held), " beyond that"));
    }
    if (wanted.time.least != 0 && given.time + wanted.time.least > kMaxGuaranteedTime) {
      return absl::ResourceExhaustedError(
          absl::StrCat("device ", device, ": ", PercentText(wanted.time.least),
                       " of its time are wanted, and claims are guaranteed ", PercentText(given.time), " of ",
                       PercentText(kMaxGuaranteedTime)));
    }
  }
  return absl::OkStatus();
}

}  // namespace xpud
