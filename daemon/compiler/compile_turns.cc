#include "daemon/compiler/compile_turns.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace xpud::compiler {

namespace {

bool IsAbandoned(const std::vector<CompileTurns::Waiter>& waiters) {
  return !waiters.empty() && std::ranges::all_of(waiters, [](const CompileTurns::Waiter& waiter) {
    return waiter.owner.expired();
  });
}

}  // namespace

void CompileTurns::Join(uint64_t job, const Waiter& waiter) {
  if (const auto waiting = waiting_.find(job); waiting != waiting_.end())
    waiting->second.push_back(waiter);
  else if (const auto running = running_.find(job); running != running_.end())
    running->second.waiters.push_back(waiter);
}

std::vector<uint64_t> CompileTurns::AbandonedWhileRunning(uint64_t now_ns) const {
  std::vector<uint64_t> found;
  for (const auto& [job, one] : running_)
    if (IsOverdue(one, now_ns) && IsAbandoned(one.waiters)) found.push_back(job);
  return found;
}

std::vector<uint64_t> CompileTurns::TakeAbandoned() {
  std::vector<uint64_t> taken;
  std::erase_if(waiting_, [&](const auto& job) {
    const bool abandoned = IsAbandoned(job.second);
    if (abandoned) taken.push_back(job.first);
    return abandoned;
  });
  return taken;
}

std::optional<uint64_t> CompileTurns::Start(uint64_t now_ns) {
  const size_t overdue = Overdue(now_ns);
  if (overdue >= limits_.overdue || running_.size() - overdue >= limits_.at_once) return std::nullopt;
  const Waiter nobody;
  const auto* next = static_cast<const decltype(waiting_)::value_type*>(nullptr);
  const Waiter* chosen = nullptr;
  std::pair least(std::numeric_limits<uint64_t>::max(), true);
  const auto consider = [&](const auto& job, const Waiter& waiter) {
    if (!MayStart(waiter, overdue, now_ns)) return;
    const std::pair order(UsedNs(waiter.tenant, now_ns), waiter.is_ahead);
    if (order >= least) return;
    least = order;
    next = &job;
    chosen = &waiter;
  };
  for (const auto& job : waiting_) {
    for (const Waiter& waiter : job.second) consider(job, waiter);
    if (job.second.empty()) consider(job, nobody);
  }
  if (next == nullptr) return std::nullopt;
  const uint64_t job = next->first;
  uint64_t& used = used_ns_[chosen->tenant];
  used = floor_ns_ = std::max(used, floor_ns_);
  const Waiter waiter = *chosen;
  running_.emplace(job, Running{waiter, now_ns, std::move(waiting_.extract(job).mapped())});
  return job;
}

uint64_t CompileTurns::End(uint64_t job, uint64_t now_ns) {
  const auto found = running_.find(job);
  const uint64_t took = now_ns - found->second.began_ns;
  used_ns_[found->second.waiter.tenant] += took;
  if (const auto owner = found->second.waiter.owner.lock()) owner->Charge(took);
  running_.erase(found);
  ForgetTenants();
  return took;
}

uint64_t CompileTurns::DueNs(uint64_t now_ns) const {
  uint64_t due = std::numeric_limits<uint64_t>::max();
  for (const auto& [job, one] : running_)
    if (!IsOverdue(one, now_ns)) due = std::min(due, one.began_ns + limits_.patience_ns);
  return due;
}

size_t CompileTurns::Overdue(uint64_t now_ns) const {
  return static_cast<size_t>(
      std::ranges::count_if(running_, [&](const auto& job) { return IsOverdue(job.second, now_ns); }));
}

bool CompileTurns::MayStart(const Waiter& waiter, size_t overdue, uint64_t now_ns) const {
  size_t of_tenant = 0;
  for (const auto& [job, one] : running_) {
    if (one.waiter.tenant != waiter.tenant || !IsOverdue(one, now_ns)) continue;
    const auto& owner = one.waiter.owner;
    if (!owner.owner_before(waiter.owner) && !waiter.owner.owner_before(owner)) return false;
    ++of_tenant;
  }
  return of_tenant < (overdue < limits_.overdue_many ? limits_.overdue_of_tenant : 1);
}

// With what runs.
uint64_t CompileTurns::UsedNs(uint64_t tenant, uint64_t now_ns) const {
  const auto found = used_ns_.find(tenant);
  uint64_t used = found == used_ns_.end() ? floor_ns_ : std::max(found->second, floor_ns_);
  for (const auto& [job, one] : running_)
    if (one.waiter.tenant == tenant) used += now_ns - one.began_ns;
  return used;
}

void CompileTurns::ForgetTenants() {
  const auto runs = [&](uint64_t tenant) {
    return std::ranges::any_of(running_, [&](const auto& job) { return job.second.waiter.tenant == tenant; });
  };
  std::erase_if(used_ns_,
                [&](const auto& tenant) { return tenant.second <= floor_ns_ && !runs(tenant.first); });
  if (used_ns_.size() <= kMaxTenants) return;
  const auto least = std::ranges::min_element(
      used_ns_, {}, [&](const auto& tenant) { return std::pair(runs(tenant.first), tenant.second); });
  used_ns_.erase(least);
}

}  // namespace xpud::compiler
