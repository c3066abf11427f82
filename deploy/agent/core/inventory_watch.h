// Knows the inventory: asks the daemon, and hears of its events. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/daemon_link.h"
#include "deploy/agent/core/inventory.h"
#include "proto/base/mutex.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent {

// What these messages say. `claims` with the agent's label count as not there.
Inventory InventoryOf(const v1::GetStatusResponse& status, const v1::ListClaimsResponse& claims);

class InventoryWatch {
 public:
  // Called on the watch's thread when the inventory has changed.
  using Changed = std::function<void(const Inventory&)>;

  // Both must outlive the watch. `sysfs`: where the kernel says where devices are. `has_started`: the daemon
  // answers for the first time, or has started anew.
  InventoryWatch(DaemonLink& daemon, Conditions& conditions, std::string sysfs, Changed changed,
                 std::function<void()> has_started);
  ~InventoryWatch();
  InventoryWatch(const InventoryWatch&) = delete;
  InventoryWatch& operator=(const InventoryWatch&) = delete;

  absl::Status Start();
  // Has the inventory read anew at once: what it says was found to be untrue.
  void Refresh();
  // Empty before the daemon has answered once.
  Inventory Current() const;
  // Waits until the inventory differs from `seen`, or the time is over. Returns it.
  Inventory WaitForChange(const Inventory& seen, std::chrono::milliseconds most) const;

 private:
  void Main();
  // Reads the inventory, and makes known what has changed.
  absl::Status Read();
  void Put(const Inventory& inventory);
  // Waits until the inventory may have changed.
  absl::Status WaitForEvent();
  // Returns false if the watch is to end. Takes the wish for a new reading.
  bool Pause(std::chrono::milliseconds most);

  DaemonLink& daemon_;
  Conditions& conditions_;
  const std::string sysfs_;
  const Changed changed_;
  const std::function<void()> has_started_;

  mutable Mutex mutex_;
  mutable CondVar wake_;
  Inventory inventory_ ABSL_GUARDED_BY(mutex_);
  bool refresh_ ABSL_GUARDED_BY(mutex_) = false;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;

  // The watch's thread only.
  uint64_t last_event_ = 0;
  uint64_t daemon_started_ns_ = 0;  // on the monotonic clock; 0: it has not answered yet

  std::thread thread_;
};

}  // namespace xpud::agent
