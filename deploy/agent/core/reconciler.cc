#include "deploy/agent/core/reconciler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent {

Reconciler::~Reconciler() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status Reconciler::Start() {
  ASSIGN_OR_RETURN(thread_, StartThread("xpud-reconcile", [this] { Main(); }));
  return absl::OkStatus();
}

void Reconciler::Run() {
  const MutexLock lock(mutex_);
  asked_ = true;
  wake_.NotifyAll();
}

absl::Status Reconciler::ReconcileAll() {
  absl::Status all;
  for (Engine* engine : engines_) {
    const std::string name(engine->name());
    const auto claims = keeper_.List(name);
    const absl::Status status = claims.ok() ? engine->Reconcile(*claims) : claims.status();
    conditions_.Set(absl::StrCat(name, "-claims"), status);
    all.Update(status);
  }
  return all;
}

std::chrono::seconds Reconciler::Period() const {
  std::chrono::seconds shortest = std::chrono::minutes(1);
  for (const Engine* engine : engines_) shortest = std::min(shortest, engine->period());
  return shortest;
}

void Reconciler::Main() {
  while (true) {
    const absl::Status status = ReconcileAll();
    const auto end = std::chrono::steady_clock::now() + (status.ok() ? Period() : kRetryPeriod);
    const MutexLock lock(mutex_);
    while (!stops_ && !asked_ && std::chrono::steady_clock::now() < end)
      wake_.WaitFor(mutex_, end - std::chrono::steady_clock::now());
    if (stops_) return;
    asked_ = false;
  }
}

}  // namespace xpud::agent
