// Checks xpud-node-agent.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "sdk/control/client.h"
#include "tools/xpuctl/checks.h"

namespace xpud::xpuctl {
namespace {

constexpr char kProgram[] = "xpud-node-agent", kConfiguration[] = "/etc/xpud/agent.yaml";
constexpr char kEngineLabel[] = "engine";  // of the agent's claims

std::optional<int> FindProcess(const std::string& name) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string number = entry.path().filename();
    int pid = 0;
    const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), pid);
    if (failed != std::errc() || end != number.data() + number.size()) continue;
    std::ifstream file(entry.path() / "comm");
    std::string found;
    if (std::getline(file, found) && found == name) return pid;
  }
  return std::nullopt;
}

size_t ClaimsOfEngines(const std::string& address) {
  auto client = control::Client::Connect(address);
  if (!client.ok()) return 0;
  const auto list = client->ListClaims(/*only_granted=*/true);
  if (!list.ok()) return 0;  // only operators see claims
  return static_cast<size_t>(std::ranges::count_if(
      list->claims(), [](const v1::Claim& claim) { return claim.labels().contains(kEngineLabel); }));
}

}  // namespace

void CheckAgent(const Invocation& invocation, Checks& checks) {
  checks.push_back(JudgeAgent({.pid = FindProcess(kProgram),
                               .installed = access(kConfiguration, F_OK) == 0,
                               .claims = ClaimsOfEngines(invocation.address)}));
}

}  // namespace xpud::xpuctl
