#include "deploy/agent/core/inventory_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/core/pci_place.h"
#include "proto/base/pci_address.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMaxClaims = 1024;           // that a daemon has
constexpr uint64_t kMemoryStep = 256ull << 20;  // smaller changes of free memory are not worth a new slice
constexpr std::chrono::milliseconds kEventWait{4'000}, kRetryPause{500}, kEventPause{20};
constexpr std::chrono::seconds kReadPeriod{10};  // memory that others take and free makes no events
constexpr uint64_t kSameStartNs = 50'000'000;    // the start is known from two readings of a clock

// After which events the inventory may be another one.
bool Matters(const v1::Event& event) {
  static const auto* const kKinds =
      new std::set<std::string_view>{"executor_lost", "executor_replaced", "drain_on",      "drain_off",
                                     "claim_created", "claim_changed",     "claim_deleted", "claim_expired"};
  return kKinds->contains(event.kind());
}

// The daemon's memory of the device, of which fragments below kMemoryStep are not given out.
uint64_t Rounded(uint64_t bytes) { return bytes < kMemoryStep ? bytes : bytes / kMemoryStep * kMemoryStep; }

bool HasDevice(const v1::Claim& claim, uint32_t device) {
  return std::ranges::find(claim.devices(), device) != claim.devices().end();
}

}  // namespace

Inventory InventoryOf(const v1::GetStatusResponse& status, const v1::ListClaimsResponse& list) {
  Inventory inventory;
  inventory.claims = kMaxClaims;
  inventory.drained = status.daemon().drained();
  for (const v1::Device& device : status.devices()) {
    DeviceState& out = inventory.devices.emplace_back();
    out.index = device.index();
    out.model = device.name();
    out.kind = device.kind();
    out.vendor = device.vendor();
    out.driver = device.driver();
    out.compute_units = device.compute_units();
    out.pci_address = PciAddress::Parse(device.pci_address()).Text();
    if (device.has_executors_replaced() && !device.has_executor_pid())
      out.unhealthy = "its executor process was lost and is being replaced";
    uint64_t memory = 0;
    uint32_t time = 0;
    for (const v1::Guaranteeable& left : list.guaranteeable()) {
      if (left.device() != device.index()) continue;
      memory = left.memory_bytes();
      time = left.time();
    }
    for (const v1::Claim& claim : list.claims()) {
      if (!claim.labels().contains(kEngineLabel) || claim.ends() || !HasDevice(claim, device.index()))
        continue;
      memory += claim.memory_least_bytes();
      time += claim.time_least();
    }
    out.memory_bytes = Rounded(memory);
    out.share = std::min(time / kTimeOfAShare, kMaxShare);
  }
  for (const v1::Claim& claim : list.claims())
    if (!claim.labels().contains(kEngineLabel) && inventory.claims > 0) --inventory.claims;
  return inventory;
}

InventoryWatch::InventoryWatch(DaemonLink& daemon, Conditions& conditions, std::string sysfs, Changed changed,
                               std::function<void()> has_started)
    : daemon_(daemon),
      conditions_(conditions),
      sysfs_(std::move(sysfs)),
      changed_(std::move(changed)),
      has_started_(std::move(has_started)) {}

InventoryWatch::~InventoryWatch() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status InventoryWatch::Start() {
  ASSIGN_OR_RETURN(thread_, StartThread("xpud-inventory", [this] { Main(); }));
  return absl::OkStatus();
}

void InventoryWatch::Refresh() {
  const MutexLock lock(mutex_);
  refresh_ = true;
  wake_.NotifyAll();
}

Inventory InventoryWatch::Current() const {
  const MutexLock lock(mutex_);
  return inventory_;
}

Inventory InventoryWatch::WaitForChange(const Inventory& seen, std::chrono::milliseconds most) const {
  const auto end = Clock::now() + most;
  const MutexLock lock(mutex_);
  while (!stops_ && inventory_ == seen && Clock::now() < end) wake_.WaitFor(mutex_, end - Clock::now());
  return inventory_;
}

void InventoryWatch::Put(const Inventory& inventory) {
  {
    const MutexLock lock(mutex_);
    if (inventory == inventory_) return;
    inventory_ = inventory;
    wake_.NotifyAll();
  }
  for (const DeviceState& device : inventory.devices)
    if (!device.unhealthy.empty())
      spdlog::warn("device_unhealthy device={} reason=\"{}\"", device.index, device.unhealthy);
  changed_(inventory);
}

absl::Status InventoryWatch::Read() {
  ASSIGN_OR_RETURN(const v1::GetStatusResponse status,
                   daemon_.With([](control::Client& client) { return client.GetStatus(); }));
  ASSIGN_OR_RETURN(const v1::ListClaimsResponse claims,
                   daemon_.With([](control::Client& client) { return client.ListClaims(); }));
  Inventory inventory = InventoryOf(status, claims);
  for (DeviceState& device : inventory.devices) {
    PciPlace place = ReadPciPlace(sysfs_, PciAddress::Parse(device.pci_address));
    device.pcie_root = std::move(place.root);
    device.numa_node = place.numa_node;
  }
  Put(inventory);
  const uint64_t started = status.time_ns() - status.daemon().uptime_ns();
  const bool is_same =
      std::max(started, daemon_started_ns_) - std::min(started, daemon_started_ns_) < kSameStartNs;
  if (!is_same) {
    daemon_started_ns_ = started;
    last_event_ = 0;
    has_started_();
  }
  return absl::OkStatus();
}

bool InventoryWatch::Pause(std::chrono::milliseconds most) {
  const auto end = Clock::now() + most;
  const MutexLock lock(mutex_);
  while (!stops_ && !refresh_ && Clock::now() < end) wake_.WaitFor(mutex_, end - Clock::now());
  return !stops_;
}

absl::Status InventoryWatch::WaitForEvent() {
  for (const auto end = Clock::now() + kReadPeriod; Clock::now() < end;) {
    {
      const MutexLock lock(mutex_);
      if (stops_ || refresh_) break;
    }
    ASSIGN_OR_RETURN(const v1::ListEventsResponse list, daemon_.With([&](control::Client& client) {
      return client.ListEvents(last_event_, kEventWait);
    }));
    bool matters = false;
    for (const v1::Event& event : list.events()) {
      last_event_ = std::max(last_event_, event.sequence());
      matters = matters || Matters(event);
    }
    if (matters) break;
    if (list.events_size() != 0 && !Pause(kEventPause)) break;
  }
  return absl::OkStatus();
}

void InventoryWatch::Main() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (stops_) return;
      refresh_ = false;
    }
    absl::Status status = Read();
    if (status.ok()) status = WaitForEvent();
    conditions_.Set("daemon", status);
    if (status.ok()) continue;
    Inventory lost = Current();
    for (DeviceState& device : lost.devices) device.unhealthy = "the daemon does not answer";
    Put(lost);
    if (!Pause(kRetryPause)) return;
  }
}

}  // namespace xpud::agent
