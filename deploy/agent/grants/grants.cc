#include "deploy/agent/grants/grants.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <utility>

#include "deploy/agent/grants/request.h"
#include "proto/base/status_macros.h"

namespace xpud::agent {

absl::StatusOr<std::unique_ptr<Grants>> Grants::Start(ClaimKeeper& keeper, const std::string& socket,
                                                      Budgets budgets, Door::MakeService make_service) {
  std::unique_ptr<Grants> grants(new Grants());
  ASSIGN_OR_RETURN(grants->turns_, Turns::Start());
  ASSIGN_OR_RETURN(grants->watch_, ProcessWatch::Start([raw = grants.get()](const std::string& key) {
                     raw->ProcessEnded(key);
                   }));
  grants->desk_ = std::make_unique<Desk>(keeper, *grants->watch_, Budgets());
  grants->SetBudgets(std::move(budgets));
  ASSIGN_OR_RETURN(grants->door_, Door::Open(socket, *grants->desk_, *grants->turns_, keeper.counters(),
                                             std::move(make_service)));
  return grants;
}

Grants::~Grants() {
  if (turns_ != nullptr) turns_->End();
}

void Grants::SetBudgets(Budgets budgets) {
  budgets.agent_uid = geteuid();
  desk_->SetBudgets(std::move(budgets));
}

std::string_view Grants::name() const { return kGrantsEngine; }

void Grants::ProcessEnded(const std::string& key) {
  const std::optional<uint32_t> uid = OwnerOf(key);
  turns_->Add(uid.value_or(0), Turns::Pace::kUnlimited, [this, key](const absl::Status& turn) {
    const absl::Status ended = turn.ok() ? desk_->EndOfProcess(key) : turn;
    if (!ended.ok()) {
      spdlog::warn("grant_not_deleted claim={} engine={} error=\"{}\"", key, kGrantsEngine,
                   std::string(ended.message()));
    }
  });
}

}  // namespace xpud::agent
