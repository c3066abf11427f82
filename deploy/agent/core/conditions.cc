#include "deploy/agent/core/conditions.h"

#include <spdlog/spdlog.h>

namespace xpud::agent {

void Conditions::Set(const std::string& name, const absl::Status& status) {
  const MutexLock lock(mutex_);
  std::string reason(status.ok() ? "" : status.message());
  const auto [at, is_new] = reasons_.emplace(name, "");
  if (at->second == reason) return;
  if (reason.empty())
    spdlog::info("condition name={} ok", name);
  else
    spdlog::warn("condition name={} reason=\"{}\"", name, reason);
  at->second = std::move(reason);
}

std::map<std::string, std::string> Conditions::Failing() const {
  const MutexLock lock(mutex_);
  std::map<std::string, std::string> failing;
  for (const auto& [name, reason] : reasons_)
    if (!reason.empty()) failing.emplace(name, reason);
  return failing;
}

std::map<std::string, std::string> Conditions::All() const {
  const MutexLock lock(mutex_);
  return reasons_;
}

}  // namespace xpud::agent
