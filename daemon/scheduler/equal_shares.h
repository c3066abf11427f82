// Every session gets an equal part: of the lane's time (FairShare), and on an asynchronous device also of the
// device's time (DeviceShare). Classes, tenants and weights make no difference.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "daemon/scheduler/device_share.h"
#include "daemon/scheduler/fair_share.h"
#include "daemon/scheduler/policy.h"
#include "proto/base/clock.h"

namespace xpud::scheduler {

class EqualShares final : public Policy {
 public:
  static std::unique_ptr<Policy> Create(uint64_t slice_ns) {
    return std::make_unique<EqualShares>(slice_ns, NowNs);
  }
  // `now_ns`: a monotonic clock.
  EqualShares(uint64_t slice_ns, uint64_t (*now_ns)()) : lane_(slice_ns, now_ns) {}

  Policy::Account& Add(Class, const Tenant&, uint32_t) override {
    return accounts_.emplace_back(lane_.Add(), device_.Add());
  }
  void Remove(Policy::Account& account) override;
  void Update(Policy::Account& account, const stream::DeviceWork& work) override {
    device_.Update(Of(account).device, work);
  }
  void BeginRound(uint64_t now_ns) override {
    lane_.BeginRound();
    device_.BeginRound(now_ns);
  }
  Answer Decide(Policy::Account& account) override;
  void Ran(Policy::Account& account, uint64_t began_ns, uint64_t ended_ns) override {
    lane_.Ran(Of(account).lane, began_ns, ended_ns);
  }
  void WasIdle(Policy::Account& account) override { lane_.WasIdle(Of(account).lane); }

 private:
  struct Account final : Policy::Account {
    Account(FairShare::Account& of_lane, DeviceShare::Account& of_device)
        : lane(of_lane), device(of_device) {}
    FairShare::Account& lane;
    DeviceShare::Account& device;
  };
  static Account& Of(Policy::Account& account) { return static_cast<Account&>(account); }

  FairShare lane_;
  DeviceShare device_;
  std::list<Account> accounts_;
};

}  // namespace xpud::scheduler
