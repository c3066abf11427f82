// The engine of those who are no cluster: users' processes that ask the agent for grants at its local socket.
// Made by main, which destroys it before the keeper; its destructor leaves the grants in place.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/engine.h"
#include "deploy/agent/grants/budget.h"
#include "deploy/agent/grants/desk.h"
#include "deploy/agent/grants/door.h"
#include "deploy/agent/grants/process_watch.h"
#include "deploy/agent/grants/turns.h"

namespace xpud::agent {

class Grants final : public Engine {
 public:
  // Opens the socket, in a folder that belongs to this user or root. `keeper`, and what `make_service` needs,
  // outlive the engine.
  static absl::StatusOr<std::unique_ptr<Grants>> Start(ClaimKeeper& keeper, const std::string& socket,
                                                       Budgets budgets,
                                                       Door::MakeService make_service = nullptr);
  // Waits for calls that the daemon is working on; the others end with Unavailable.
  ~Grants() override;
  Grants(const Grants&) = delete;
  Grants& operator=(const Grants&) = delete;

  // What users may have from now on; grants that there are stay. Thread-safe.
  void SetBudgets(Budgets budgets);

  std::string_view name() const override;
  absl::Status Reconcile(const std::vector<v1::Claim>& claims) override { return desk_->Reconcile(claims); }

 private:
  Grants() = default;
  void ProcessEnded(const std::string& key);

  // Each uses those before it.
  std::unique_ptr<Turns> turns_;
  std::unique_ptr<ProcessWatch> watch_;
  std::unique_ptr<Desk> desk_;
  std::unique_ptr<Door> door_;
};

}  // namespace xpud::agent
