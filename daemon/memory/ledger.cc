#include "daemon/memory/ledger.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/transport/barrier.h"

namespace xpud::memory {
namespace {

uint64_t Less(uint64_t a, uint64_t b) { return a - std::min(a, b); }

}  // namespace

Ledger::Account& Ledger::Open(const Tenant& tenant, std::atomic<uint64_t>* published,
                              const std::atomic<uint64_t>* claimed) {
  auto& share = *tenants_.try_emplace(tenant).first;
  ++share.second.accounts;
  Account& account = accounts_.emplace_back();
  account.share_ = &share;
  account.published_ = published;
  account.claimed_ = claimed;
  return account;
}

void Ledger::Close(Account& account) {
  XPUD_CHECK(account.held_ == 0);
  SetCredit(account, 0);
  const Tenant tenant = account.share_->first;
  --account.share_->second.accounts;
  accounts_.remove_if([&](const Account& each) { return &each == &account; });
  Forget(tenant);
}

void Ledger::Forget(const Tenant& tenant) {
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end() && found->second.accounts == 0 && !found->second.quota &&
      found->second.guarantee == 0)
    tenants_.erase(found);
}

void Ledger::Change(Account& account, absl::FunctionRef<void()> change) {
  Share& share = account.share_->second;
  unused_ -= Unused(account);
  share.unused -= Unused(account);
  change();
  unused_ += Unused(account);
  share.unused += Unused(account);
}

void Ledger::SetCredit(Account& account, uint64_t credit) {
  if (credit == account.credit_) return;
  Share& share = account.share_->second;
  promised_ -= Promised(share);
  Change(account, [&] {
    share.credit += credit - account.credit_;
    account.credit_ = credit;
  });
  promised_ += Promised(share);
  account.published_->store(credit, std::memory_order_seq_cst);
}

void Ledger::Hold(Account& account, uint64_t bytes) {
  Change(account, [&] { account.held_ += bytes; });
}

void Ledger::Release(Account& account, uint64_t bytes) {
  XPUD_CHECK(bytes <= account.held_);
  Change(account, [&] { account.held_ -= bytes; });
}

// Neither unused credit nor the tenant's sums change: both accounts hold what they get or lose as credit.
void Ledger::Move(Account& from, Account& to, uint64_t bytes) {
  XPUD_CHECK(from.share_ == to.share_ && bytes <= from.held_ && bytes <= from.credit_);
  from.held_ -= bytes;
  from.credit_ -= bytes;
  to.held_ += bytes;
  to.credit_ += bytes;
  for (const Account* account : {&from, &to})
    account->published_->store(account->credit_, std::memory_order_seq_cst);
}

std::optional<MemoryShortage> Ledger::ShortOfOwn(const Account& account, uint64_t more) {
  if (!account.quota_) return std::nullopt;
  const uint64_t used = account.credit_ + account.attached_;
  if (more <= Less(*account.quota_, used)) return std::nullopt;
  return MemoryShortage{MemoryShortage::Scope::kProcess, *account.quota_, used};
}

uint64_t Ledger::Room(const Account& account) const {
  const uint64_t of_tenant = Less(QuotaOf(account.share_->second), account.share_->second.credit);
  return account.quota_ ? std::min(of_tenant, Less(*account.quota_, account.credit_ + account.attached_))
                        : of_tenant;
}

std::vector<MemoryShortage> Ledger::LimitsOf(const Account& account) const {
  const Share& share = account.share_->second;
  std::vector<MemoryShortage> limits;
  if (account.quota_) {
    limits.push_back({MemoryShortage::Scope::kProcess, *account.quota_, account.credit_ + account.attached_});
  }
  limits.push_back({MemoryShortage::Scope::kUser, QuotaOf(share), share.credit});
  return limits;
}

std::optional<MemoryShortage> Ledger::ShortOf(const Account& account, uint64_t more) const {
  for (const MemoryShortage& limit : LimitsOf(account)) {
    if (more > Less(limit.limit, limit.used)) return limit;
  }
  return std::nullopt;
}

uint64_t Ledger::QuotaOf(const Account& account) const {
  const uint64_t of_tenant = QuotaOf(account.share_->second);
  return account.quota_ ? std::min(of_tenant, *account.quota_) : of_tenant;
}

uint64_t Ledger::QuotaOf(const Tenant& tenant, std::optional<uint64_t> own) const {
  const auto share = tenants_.find(tenant);
  const uint64_t of_tenant = share == tenants_.end() ? default_quota_ : QuotaOf(share->second);
  return own ? std::min(of_tenant, *own) : of_tenant;
}

bool Ledger::IsBeyondQuota(const Account& account) const {
  return (account.quota_ && account.credit_ + account.attached_ > *account.quota_) ||
         account.share_->second.credit > QuotaOf(account.share_->second);
}

void Ledger::SetIdle(Account& account, bool idle) {
  account.idle_ = idle;
  if (idle && IsBeyondQuota(account)) TakeBack([&](const Account& each) { return &each == &account; });
}

void Ledger::TakeBack(absl::FunctionRef<bool(const Account&)> from) {
  std::vector<std::pair<Account*, uint64_t>> lowered;
  for (Account& account : accounts_) {
    if (!account.idle_ || Unused(account) == 0 || !from(account)) continue;
    lowered.emplace_back(&account, account.credit_);
    SetCredit(account, account.credit_ - Unused(account));
  }
  if (lowered.empty()) return;
  // After this barrier, a client that has not seen its lower credit has published its claim.
  transport::IssueRemoteBarrier();
  for (const auto& [account, before] : lowered) {
    const uint64_t claimed = std::min(account->claimed_->load(std::memory_order_seq_cst), before);
    if (claimed > account->credit_) SetCredit(*account, claimed);
  }
}

void Ledger::SetDefaultQuota(std::optional<uint64_t> bytes) {
  default_quota_ = bytes.value_or(capacity_ / 10 * 9);
  Enforce();
}

void Ledger::SetTenantQuota(const Tenant& tenant, std::optional<uint64_t> bytes) {
  tenants_[tenant].quota = bytes;
  Forget(tenant);
  Enforce();
}

void Ledger::SetGuarantee(const Tenant& tenant, uint64_t bytes) {
  Share& share = tenants_[tenant];
  promised_ -= Promised(share);
  share.guarantee = bytes;
  promised_ += Promised(share);
  Forget(tenant);
}

void Ledger::SetQuota(Account& account, std::optional<uint64_t> bytes) {
  account.quota_ = bytes;
  Enforce();
}

}  // namespace xpud::memory
