// Who may hold how much of one device's memory. An account is a session's. Its *credit* is memory kept for
// it: what it holds is part of that, and it may allocate the rest without asking. Credit is given up to
// quotas, the session's own and that of its tenant, which all its sessions share. The engine thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <optional>

#include "absl/functional/function_ref.h"
#include "daemon/tenant/tenant.h"
#include "proto/base/out_of_memory.h"

namespace xpud::memory {

class Ledger {
 public:
  struct Share {
    std::optional<uint64_t> quota;  // set for it alone
    uint64_t credit = 0;            // of its accounts
    int accounts = 0;
  };

  class Account {
   public:
    // Not 0, and no other tenant's: whose bytes may lie in a memory.
    uint32_t label() const { return label_; }
    uint64_t credit() const { return credit_; }
    uint64_t held() const { return held_; }
    std::optional<uint64_t> quota() const { return quota_; }

   private:
    friend class Ledger;
    std::map<Tenant, Share>::value_type* share_ = nullptr;
    uint32_t label_ = 0;
    std::atomic<uint64_t>* published_ = nullptr;      // where its client reads its credit
    const std::atomic<uint64_t>* claimed_ = nullptr;  // and says what it means to use of that
    uint64_t credit_ = 0;
    uint64_t held_ = 0;  // by buffers, and by what was freed and is still in use; may exceed the credit
    std::optional<uint64_t> quota_;
    bool idle_ = true;
  };

  // `capacity`: bytes of the device. The default quota of a tenant is nine tenths of that.
  explicit Ledger(uint64_t capacity) : capacity_(capacity), default_quota_(capacity / 10 * 9) {}

  // An account's credit is stored to `published`; the client writes anything to `claimed`, and then looks at
  // its credit. Both outlive the account.
  Account& Open(const Tenant& tenant, std::atomic<uint64_t>* published, const std::atomic<uint64_t>* claimed);
  // It holds nothing any more.
  void Close(Account& account);

  // What the quotas leave; why it is less than `more`, if it is.
  uint64_t Room(const Account& account) const;
  std::optional<MemoryShortage> ShortOf(const Account& account, uint64_t more) const;
  void Give(Account& account, uint64_t bytes) { SetCredit(account, account.credit_ + bytes); }
  void Hold(Account& account, uint64_t bytes);
  void Release(Account& account, uint64_t bytes);
  // A session is idle while it has no command under way or published: then credit may be taken back that it
  // neither uses nor claims.
  void SetIdle(Account& account, bool idle);
  // Takes that back from all idle sessions.
  void Reclaim() {
    TakeBack([](const Account&) { return true; });
  }

  // Credit that is not in use, of all accounts.
  uint64_t unused() const { return unused_; }
  uint64_t capacity() const { return capacity_; }

  // Quotas from now on, nullopt: the default again. What is held beyond them stays.
  void SetDefaultQuota(std::optional<uint64_t> bytes);
  void SetTenantQuota(const Tenant& tenant, std::optional<uint64_t> bytes);
  void SetQuota(Account& account, std::optional<uint64_t> bytes);
  uint64_t QuotaOf(const Share& share) const { return share.quota.value_or(default_quota_); }
  // The least of its own, if it has one, and its tenant's.
  uint64_t QuotaOf(const Account& account) const;
  uint64_t default_quota() const { return default_quota_; }
  const std::map<Tenant, Share>& tenants() const { return tenants_; }

 private:
  static uint64_t Unused(const Account& account) {
    return account.credit_ - (account.held_ < account.credit_ ? account.held_ : account.credit_);
  }
  void SetCredit(Account& account, uint64_t credit);
  void TakeBack(absl::FunctionRef<bool(const Account&)> from);
  // Takes credit back from those that are beyond their quotas.
  void Enforce() {
    TakeBack([&](const Account& account) { return IsBeyondQuota(account); });
  }
  bool IsBeyondQuota(const Account& account) const;
  void Forget(const Tenant& tenant);

  const uint64_t capacity_;
  uint64_t default_quota_;
  std::map<Tenant, Share> tenants_;
  std::map<Tenant, uint32_t> labels_;  // of all there ever were: their bytes may still be in free memory
  std::list<Account> accounts_;
  uint64_t unused_ = 0;
};

}  // namespace xpud::memory
