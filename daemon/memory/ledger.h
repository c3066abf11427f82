// The accounts of one device's memory, one for each session. An account's *credit* is memory reserved for it:
// it includes what the account holds, and the session may allocate the rest without asking. Credit is limited
// by the session's quota and by the quota that all sessions of a tenant share. A tenant may have a guarantee:
// memory that is kept free for it until it has that much credit. REQUIRES: the lane's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/tenant/tenant.h"
#include "proto/base/out_of_memory.h"

namespace xpud::memory {

class Arena;

class Ledger {
 public:
  struct Share {
    std::optional<uint64_t> quota;  // the tenant's own quota
    uint64_t guarantee = 0;
    uint64_t credit = 0;  // of its accounts
    uint64_t unused = 0;  // of that
    int accounts = 0;
  };

  class Account {
   public:
    Arena* arena = nullptr;                                // where its blocks lie; set by the pool
    const Share& share() const { return share_->second; }  // of its tenant
    uint64_t credit() const { return credit_; }
    uint64_t held() const { return held_; }
    std::optional<uint64_t> quota() const { return quota_; }
    // Bytes of shared memory that the session has, which its own quota counts, too.
    uint64_t attached() const { return attached_; }

   private:
    friend class Ledger;
    std::map<Tenant, Share>::value_type* share_ = nullptr;
    std::atomic<uint64_t>* published_ = nullptr;      // the word from which the client reads its credit
    const std::atomic<uint64_t>* claimed_ = nullptr;  // the word in which it says how much it will use
    uint64_t credit_ = 0;
    // Bytes in buffers, including freed ones that are still in use; may exceed the credit.
    uint64_t held_ = 0;
    uint64_t attached_ = 0;
    std::optional<uint64_t> quota_;
    bool idle_ = true;
  };

  // `capacity`: bytes of the device. The default quota of a tenant is nine tenths of it.
  explicit Ledger(uint64_t capacity) : capacity_(capacity), default_quota_(capacity / 10 * 9) {}

  // Credit is stored to `published`. The client writes to `claimed`, and reads its credit afterwards;
  // `claimed` is not trusted. Both must outlive the account.
  Account& Open(const Tenant& tenant, std::atomic<uint64_t>* published, const std::atomic<uint64_t>* claimed);
  // REQUIRES: the account holds nothing.
  void Close(Account& account);

  // Returns how much credit the quotas still allow, and, if that is less than `more`, the reason.
  uint64_t Room(const Account& account) const;
  std::optional<MemoryShortage> ShortOf(const Account& account, uint64_t more) const;
  // Returns the limits of the account: its tenant's, and its own if it has one.
  std::vector<MemoryShortage> LimitsOf(const Account& account) const;
  void Give(Account& account, uint64_t bytes) { SetCredit(account, account.credit_ + bytes); }
  void Hold(Account& account, uint64_t bytes);
  void Release(Account& account, uint64_t bytes);
  // Moves bytes that `from` holds, and their credit, to another account of the tenant. What the tenant's
  // accounts hold and have as credit stays the same.
  void Move(Account& from, Account& to, uint64_t bytes);
  // Takes `bytes` of credit away. REQUIRES: it has so much.
  void TakeCredit(Account& account, uint64_t bytes) { SetCredit(account, account.credit_ - bytes); }
  // The session has `bytes` of shared memory in all.
  static void SetAttached(Account& account, uint64_t bytes) { account.attached_ = bytes; }
  // Returns the limit if `more` bytes of shared memory exceed the session's own quota.
  static std::optional<MemoryShortage> ShortOfOwn(const Account& account, uint64_t more);
  // A session is idle if it has no published command and none in flight. Credit that an idle session neither
  // uses nor claims may be taken back.
  void SetIdle(Account& account, bool idle);
  // Takes back such credit of all idle sessions.
  void Reclaim() {
    TakeBack([](const Account&) { return true; });
  }

  const Tenant& TenantOf(const Account& account) const { return account.share_->first; }
  // Unused credit of all accounts.
  uint64_t unused() const { return unused_; }
  // What other tenants than the account's are guaranteed, beyond the credit that they have; if anything, then
  // with the memory that is not there for tenants.
  uint64_t PromisedToOthers(const Account& account) const {
    const uint64_t promised = promised_ - Promised(account.share_->second);
    return promised == 0 ? 0 : promised + absent_;
  }
  uint64_t capacity() const { return capacity_; }

  // Sets quotas; nullopt restores the default. Memory held beyond a quota stays.
  void SetDefaultQuota(std::optional<uint64_t> bytes);
  void SetTenantQuota(const Tenant& tenant, std::optional<uint64_t> bytes);
  void SetQuota(Account& account, std::optional<uint64_t> bytes);
  // Keeps memory for the tenant, with or without accounts; 0: none. REQUIRES: the sums allow it
  // (tenant/claims.h).
  void SetGuarantee(const Tenant& tenant, uint64_t bytes);
  // Memory of the device that is not there for tenants: what other programs and the driver's contexts take.
  // Counts beside guarantees only, because without one it is the device itself that refuses.
  void SetAbsent(uint64_t bytes) { absent_ = bytes; }
  uint64_t QuotaOf(const Share& share) const { return share.quota.value_or(default_quota_); }
  // Returns the lower of the session's own quota, if it has one, and its tenant's.
  uint64_t QuotaOf(const Account& account) const;
  // The same for a session without an account.
  uint64_t QuotaOf(const Tenant& tenant, std::optional<uint64_t> own) const;
  uint64_t default_quota() const { return default_quota_; }
  const std::map<Tenant, Share>& tenants() const { return tenants_; }

 private:
  static uint64_t Unused(const Account& account) {
    return account.credit_ - (account.held_ < account.credit_ ? account.held_ : account.credit_);
  }
  static uint64_t Promised(const Share& share) {
    return share.guarantee - (share.credit < share.guarantee ? share.credit : share.guarantee);
  }
  void SetCredit(Account& account, uint64_t credit);
  void TakeBack(absl::FunctionRef<bool(const Account&)> from);
  // Takes back credit from accounts that exceed their quotas.
  void Enforce() {
    TakeBack([&](const Account& account) { return IsBeyondQuota(account); });
  }
  bool IsBeyondQuota(const Account& account) const;
  // Forgets the tenant if it has neither accounts nor settings.
  void Forget(const Tenant& tenant);
  // Changes what the account has by what `change` does.
  void Change(Account& account, absl::FunctionRef<void()> change);

  const uint64_t capacity_;
  uint64_t default_quota_;
  std::map<Tenant, Share> tenants_;
  std::list<Account> accounts_;
  uint64_t unused_ = 0;
  uint64_t promised_ = 0;  // of all tenants
  uint64_t absent_ = 0;
};

}  // namespace xpud::memory
