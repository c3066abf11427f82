#include "daemon/service/claim_desk.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/service/claim_messages.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::service {
namespace {

constexpr std::chrono::milliseconds kEndingPause{5};      // between two looks at a claim that ends
constexpr std::chrono::milliseconds kCancelledPause{50};  // between two looks at whether a caller still waits
// CondVar's clock stands while the machine sleeps, that of lifetimes does not.
constexpr std::chrono::nanoseconds kMaxPause = std::chrono::seconds(60);
constexpr uint64_t kNsPerMs = 1'000'000;

absl::Status NoClaim(const std::string& key) {
  return absl::NotFoundError(absl::StrCat("there is no claim ", key));
}

uint64_t ExpiryOf(const Claim& claim) {
  return claim.lifetime_ms == 0 ? 0 : BootClockNs() + claim.lifetime_ms * kNsPerMs;
}

}  // namespace

ClaimDesk::ClaimDesk(lane::Lanes& lanes, Options options)
    : lanes_(lanes), claims_(lanes.registry().claims()), options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<ClaimDesk>> ClaimDesk::Start(lane::Lanes& lanes, Options options) {
  std::unique_ptr<ClaimDesk> desk(new ClaimDesk(lanes, std::move(options)));
  if (desk->keeps()) RETURN_IF_ERROR(desk->ServeKept());
  ASSIGN_OR_RETURN(desk->thread_, StartThread("xpud-claims", [raw = desk.get()] { raw->Main(); }));
  return desk;
}

ClaimDesk::~ClaimDesk() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status ClaimDesk::ServeKept() {
  const MutexLock lock(mutex_);
  ClaimStore::Found found = options_.store->Load(devices());
  const auto note = [&](const std::string& what, const std::string& why) {
    spdlog::error("claim_unreadable claim={} reason=\"{}\"", what, why);
    lanes_.registry().events().Add({.kind = "claim_unreadable", .text = absl::StrCat(what, ": ", why)});
  };
  for (const auto& [path, why] : found.unreadable) note(path, why);
  for (const ClaimStore::Kept& kept : found.claims) {
    absl::Status served = CheckRoom();
    if (served.ok()) served = Admit(kept.claim);
    if (served.ok()) served = Serve(kept.claim, kept.expires_ns);
    if (!served.ok()) note(kept.claim.key, std::string(served.message()));
  }
  return absl::OkStatus();
}

std::vector<Claim> ClaimDesk::OthersThan(const std::string& key) const {
  std::vector<Claim> others;
  for (Claims::Entry& entry : claims_.List())
    if (entry.claim.key != key && !entry.ends) others.push_back(std::move(entry.claim));
  return others;
}

std::vector<DeviceRoom> ClaimDesk::Rooms(bool reclaims) {
  std::vector<DeviceRoom> rooms(lanes_.size());
  const std::vector<std::optional<uint64_t>> free = options_.sensors->ReadFreeMemory();
  const auto read = [&](lane::Lane& lane) {
    memory::Ledger& ledger = lane.state().pool->ledger();
    if (reclaims) ledger.Reclaim();
    DeviceRoom& room = rooms[lane.index()];
    room.memory = ledger.capacity();
    for (const auto& [tenant, share] : ledger.tenants()) room.held[tenant] = share.credit;
    // Memory that other programs and the driver's contexts take is not there.
    if (free[lane.index()]) {
      const uint64_t there = lane.state().pool->chunk_bytes() + *free[lane.index()];
      room.memory = std::min(room.memory, there - std::min(there, lane.state().device->unopened_bytes()));
    }
    ledger.SetAbsent(ledger.capacity() - room.memory);
  };
  if (reclaims)
    lanes_.CallEach(read);  // for a change, which does not wait as readers do
  else
    lanes_.VisitEach(read);
  return rooms;
}

std::vector<Guaranteeable> ClaimDesk::LeftBeside(const std::vector<Claims::Entry>& entries) {
  const std::vector<DeviceRoom> rooms = Rooms(/*reclaims=*/false);
  std::vector<Claim> claims;
  for (const Claims::Entry& entry : entries)
    if (!entry.ends) claims.push_back(entry.claim);
  std::vector<Guaranteeable> left;
  for (uint32_t device = 0; device < rooms.size(); ++device)
    left.push_back(LeftOn(device, claims, rooms[device]));
  return left;
}

absl::Status ClaimDesk::CheckRoom() const {
  if (claims_.List().size() < Claims::kMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("there are ", Claims::kMax, " claims, as many as there may be"));
}

absl::Status ClaimDesk::Admit(const Claim& claim) {
  RETURN_IF_ERROR(options_.doors->CheckPaths(claim.key));
  RETURN_IF_ERROR(claims_.CheckHolders(claim));
  if (claim.memory_least == 0 && claim.time.least == 0) return absl::OkStatus();
  return CheckGuarantees(claim, OthersThan(claim.key), Rooms(/*reclaims=*/true));
}

absl::Status ClaimDesk::OpenDoors(const Claim& claim) {
  ASSIGN_OR_RETURN(std::vector<Door> doors, options_.doors->Make(claim));
  for (Door& door : doors) options_.open_door(std::move(door));
  return absl::OkStatus();
}

absl::Status ClaimDesk::Serve(const Claim& claim, uint64_t expires_ns) {
  claims_.Put(claim, expires_ns);
  const Tenant tenant = claim.tenant();
  Apply(tenant, &claim);
  absl::Status opened = OpenDoors(claim);
  if (opened.ok()) return opened;
  options_.doors->Remove(claim.key);
  claims_.Remove(claim.key);
  Apply(tenant, nullptr);
  return opened;
}

void ClaimDesk::Apply(const Tenant& tenant, const Claim* claim) {
  lanes_.CallEach([&](lane::Lane& lane) {
    const bool is_there =
        claim != nullptr && std::ranges::find(claim->devices, lane.index()) != claim->devices.end();
    memory::Ledger& ledger = lane.state().pool->ledger();
    ledger.SetTenantQuota(tenant, is_there ? claim->memory_most : std::nullopt);
    ledger.SetGuarantee(tenant, is_there ? claim->memory_least : 0);
    lane.GrantChanged(tenant);
  });
}

absl::StatusOr<Claims::Entry> ClaimDesk::Create(const Claim& claim) {
  const MutexLock lock(mutex_);
  if (const std::optional<Claims::Entry> there = claims_.Find(claim.key)) {
    if (there->ends)
      return absl::AlreadyExistsError(
          absl::StrCat("the sessions of a claim ", claim.key, " are being ended"));
    const std::vector<std::string> differing = DifferingFields(there->claim, claim);
    if (differing.empty()) return *there;
    return absl::AlreadyExistsError(
        absl::StrCat("there is a claim ", claim.key, " with another ", absl::StrJoin(differing, ", ")));
  }
  RETURN_IF_ERROR(CheckRoom());
  RETURN_IF_ERROR(Admit(claim));
  const uint64_t expires_ns = ExpiryOf(claim);
  if (keeps()) RETURN_IF_ERROR(options_.store->Save({claim, expires_ns}));
  if (absl::Status served = Serve(claim, expires_ns); !served.ok()) {
    if (keeps()) options_.store->Remove(claim.key).IgnoreError();
    return served;
  }
  spdlog::info("claim_created key={} class={} weight={}", claim.key, NameOf(claim.time.priority),
               claim.time.weight);
  lanes_.registry().events().Add({.kind = "claim_created", .claim = claim.key});
  changed_.NotifyAll();
  return *claims_.Find(claim.key);
}

absl::StatusOr<Claims::Entry> ClaimDesk::Update(
    const std::string& key, bool renews, absl::FunctionRef<absl::StatusOr<Claim>(const Claim&)> change) {
  const MutexLock lock(mutex_);
  const std::optional<Claims::Entry> before = claims_.Find(key);
  if (!before || before->ends) return NoClaim(key);
  ASSIGN_OR_RETURN(const Claim after, change(before->claim));
  if (after.devices != before->claim.devices && before->sessions != 0) {
    return absl::FailedPreconditionError(absl::StrCat("the claim ", key, " has ", before->sessions,
                                                      " sessions; its devices change when it has none"));
  }
  RETURN_IF_ERROR(Admit(after));
  const uint64_t expires_ns = renews ? ExpiryOf(after) : before->expires_ns;
  if (after == before->claim && expires_ns == before->expires_ns) return *before;
  if (keeps()) RETURN_IF_ERROR(options_.store->Save({after, expires_ns}));
  claims_.Put(after, expires_ns);
  Apply(after.tenant(), &after);
  if (after.door_uid != before->claim.door_uid) {
    options_.close_doors(key);
    RETURN_IF_ERROR(OpenDoors(after));
  }
  const std::string text = DescribeChange(before->claim, after);
  spdlog::info("claim_changed key={} change=\"{}\"", key, text);
  lanes_.registry().events().Add({.kind = "claim_changed", .claim = key, .text = text});
  changed_.NotifyAll();
  return *claims_.Find(key);
}

std::optional<uint64_t> ClaimDesk::HeldBy(const Tenant& tenant) {
  std::optional<uint64_t> held;
  lanes_.CallEach([&](lane::Lane& lane) {
    const auto& tenants = lane.state().pool->ledger().tenants();
    const auto found = tenants.find(tenant);
    if (found == tenants.end() || found->second.accounts == 0) return;
    held = held.value_or(0);
    lane.ForEach([&](const session::DeviceSession& session) {
      if (session.peer().tenant == tenant) *held += session.allocated_bytes() - session.shared_bytes();
    });
    const auto& sharers = lane.state().shared->tenants();
    if (const auto shared = sharers.find(tenant); shared != sharers.end()) *held += shared->second.bytes;
  });
  return held;
}

absl::Status ClaimDesk::BeginEnd(const std::string& key, const char* event, const std::string& reason) {
  if (keeps()) RETURN_IF_ERROR(options_.store->Remove(key));
  const Claims::Entry entry = *claims_.Find(key);
  claims_.BeginEnd(key);
  options_.close_doors(key);
  options_.doors->Remove(key);
  const uint64_t held = HeldBy(entry.claim.tenant()).value_or(0);
  ending_[key] = std::make_shared<Ending>(Ending{event, reason, {entry.sessions, held}});
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<ClaimDesk::Ended> ClaimDesk::Delete(const std::string& key,
                                                   absl::FunctionRef<bool()> is_cancelled) {
  const MutexLock lock(mutex_);
  if (!claims_.Find(key)) return NoClaim(key);
  if (!ending_.contains(key))
    RETURN_IF_ERROR(BeginEnd(key, "claim_deleted", absl::StrCat("its claim ", key, " was deleted")));
  const std::shared_ptr<const Ending> ending = ending_.at(key);
  while (!ending->done) {
    if (stops_) return absl::UnavailableError("the daemon is ending");
    if (is_cancelled()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the claim ", key, " is deleted; its sessions are still being ended"));
    }
    changed_.WaitFor(mutex_, kCancelledPause);
  }
  return ending->ended;
}

void ClaimDesk::Continue(const std::string& key, Ending& ending) {
  const Tenant tenant = Tenant::OfClaim(key);
  if (claims_.Find(key)->sessions != 0) {
    for (const auto& session : lanes_.registry().List())
      if (session->peer().tenant == tenant) lanes_.Evict(*session, ending.reason);
  }
  if (claims_.Find(key)->sessions != 0) return;
  // Nobody is left to take its tickets.
  lanes_.CallEach([&](lane::Lane& lane) { lane.state().shared->Revoke(tenant); });
  if (HeldBy(tenant)) return;
  claims_.Remove(key);
  Apply(tenant, nullptr);
  ending.done = true;
  const std::string text =
      absl::StrCat(ending.ended.sessions, " sessions ended, ", ending.ended.memory_bytes, " bytes freed");
  spdlog::info("{} key={} sessions={} bytes={}", ending.event, key, ending.ended.sessions,
               ending.ended.memory_bytes);
  lanes_.registry().events().Add({.kind = ending.event, .claim = key, .text = text});
}

void ClaimDesk::Main() {
  const MutexLock lock(mutex_);
  while (!stops_) {
    uint64_t next_ns = UINT64_MAX;
    const uint64_t now_ns = BootClockNs();
    for (const Claims::Entry& entry : claims_.List()) {
      const std::string& key = entry.claim.key;
      if (entry.ends || entry.expires_ns == 0) continue;
      if (entry.expires_ns > now_ns) {
        next_ns = std::min(next_ns, entry.expires_ns - now_ns);
      } else if (absl::Status begun =
                     BeginEnd(key, "claim_expired", absl::StrCat("its claim ", key, " has expired"));
                 !begun.ok()) {
        spdlog::error("claim_not_removed key={} error=\"{}\"", key, std::string(begun.message()));
        next_ns = std::min<uint64_t>(next_ns, 1'000'000'000);
      }
    }
    for (auto& [key, ending] : ending_) Continue(key, *ending);
    if (std::erase_if(ending_, [](const auto& each) { return each.second->done; }) != 0) changed_.NotifyAll();
    if (!ending_.empty())
      changed_.WaitFor(mutex_, kEndingPause);
    else if (next_ns == UINT64_MAX)
      changed_.Wait(mutex_);
    else
      changed_.WaitFor(mutex_, std::min(kMaxPause, std::chrono::nanoseconds(next_ns)));
  }
}

}  // namespace xpud::service
