// Has engines compare what they want with what the daemon has: at the start, each period, and when asked.
// Owned by main. Thread-safe.
#pragma once

#include <chrono>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/engine.h"
#include "proto/base/mutex.h"

namespace xpud::agent {

class Reconciler {
 public:
  // After a reconciliation that failed.
  static constexpr std::chrono::seconds kRetryPeriod{5};

  // All must outlive the reconciler.
  Reconciler(ClaimKeeper& keeper, Conditions& conditions, std::vector<Engine*> engines)
      : keeper_(keeper), conditions_(conditions), engines_(std::move(engines)) {}
  ~Reconciler();
  Reconciler(const Reconciler&) = delete;
  Reconciler& operator=(const Reconciler&) = delete;

  absl::Status Start();
  // Has it done soon, not waiting for the period.
  void Run();

 private:
  void Main();
  absl::Status ReconcileAll();
  // The shortest of the engines' periods.
  std::chrono::seconds Period() const;

  ClaimKeeper& keeper_;
  Conditions& conditions_;
  const std::vector<Engine*> engines_;

  Mutex mutex_;
  CondVar wake_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace xpud::agent
