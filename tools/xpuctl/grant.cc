// grant: runs a program with a part of this machine's devices, which xpud-node-agent grants.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "deploy/agent/grants/local_socket.h"
#include "proto/base/text.h"
#include "tools/xpuctl/agent_grant.h"
#include "tools/xpuctl/claim_text.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/program.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kDefaultShare = 10;
constexpr milliseconds kMinPause{100}, kMaxPause{1'000};  // between two attempts
constexpr std::chrono::seconds kMaxAbsence{30};           // of an agent that starts anew

struct Wishes {
  std::string socket = agent::kLocalSocket;
  grants::v1::GrantRequest request;
  std::optional<milliseconds> most_time;   // of the program
  std::optional<Clock::time_point> waits;  // until then; nullopt: not at all
};

// Returns "" or what is wrong with the options. Limits are the agent's to say.
std::string ReadRequest(const Invocation& invocation, grants::v1::GrantRequest& request) {
  request.set_share(kDefaultShare);
  for (const auto& [name, text] : invocation.options) {
    uint32_t number = 0;
    if (name == "--share") {
      if (!absl::SimpleAtoi(text, &number)) return absl::StrCat("--share takes 1 to 100, not \"", text, "\"");
      request.set_share(number);
    } else if (name == "--memory") {
      const std::optional<uint64_t> bytes = ParseBytes(text);
      if (!bytes) return absl::StrCat("--memory takes a size as 512MiB or 8GiB, not \"", text, "\"");
      request.set_memory_bytes(*bytes);
    } else if (name == "--class") {
      request.set_class_(text);
    } else if (name == "--device") {
      for (const auto each : absl::StrSplit(text, ',')) {
        if (!absl::SimpleAtoi(each, &number))
          return absl::StrCat("--device takes numbers of devices, as 0,1, not \"", text, "\"");
        request.add_devices(number);
      }
    }
  }
  const auto [first, last] = invocation.values.equal_range("--label");
  for (auto each = first; each != last; ++each) {
    const size_t equals = each->second.find('=');
    if (equals == std::string::npos)
      return absl::StrCat("--label takes NAME=VALUE, not \"", each->second, "\"");
    (*request.mutable_labels())[each->second.substr(0, equals)] = each->second.substr(equals + 1);
  }
  return "";
}

std::string ReadTimes(const Invocation& invocation, Wishes& wishes) {
  if (const auto found = invocation.options.find("--max-time"); found != invocation.options.end()) {
    const std::optional<uint64_t> ms = ParseLifetime(found->second);
    if (!ms) return absl::StrCat("--max-time takes a time as 90s, 15m or 2h, not \"", found->second, "\"");
    wishes.most_time = milliseconds(*ms);
  }
  if (const auto found = invocation.options.find("--wait"); found != invocation.options.end()) {
    uint32_t seconds = 0;
    if (!found->second.empty() && !absl::SimpleAtoi(found->second, &seconds))
      return absl::StrCat("--wait takes seconds, not \"", found->second, "\"");
    wishes.waits =
        found->second.empty() ? Clock::time_point::max() : Clock::now() + std::chrono::seconds(seconds);
  }
  return "";
}

std::string Read(const Invocation& invocation, Wishes& wishes) {
  if (invocation.program.empty()) return "it takes a program after --";
  if (!invocation.address.empty()) return "grants are this machine's; it takes no --host";
  if (const char* socket = std::getenv("XPUD_AGENT_SOCKET"); socket != nullptr && *socket != '\0')
    wishes.socket = socket;
  if (const auto found = invocation.options.find("--address"); found != invocation.options.end())
    wishes.socket = found->second;
  const std::string trouble = ReadRequest(invocation, wishes.request);
  return trouble.empty() ? ReadTimes(invocation, wishes) : trouble;
}

std::string Reason(const absl::Status& status) { return PrintableText(std::string(status.message())); }

// Asks until there is a grant, a refusal that stays, or no time left. It asks again instead of waiting in a
// call, because a user has few connections, and other processes need them to renew and return their grants.
AgentGrant::Taken TakeOrWait(const Wishes& wishes) {
  AgentGrant::Taken taken = AgentGrant::Take(wishes.socket, wishes.request);
  bool is_first = true;
  milliseconds pause = kMinPause;
  auto answered = Clock::now();
  while (taken.grant == nullptr && wishes.waits) {
    if (taken.may_pass) answered = Clock::now();
    const bool is_away =
        absl::IsNotFound(taken.refusal) && !is_first && Clock::now() - answered < kMaxAbsence;
    if ((!taken.may_pass && !is_away) || Clock::now() + pause > *wishes.waits) break;
    if (is_first) std::fprintf(stderr, "xpuctl grant: waits: %s\n", Reason(taken.refusal).c_str());
    is_first = false;
    std::this_thread::sleep_for(pause);
    pause = std::min(kMaxPause, 2 * pause);
    taken = AgentGrant::Take(wishes.socket, wishes.request);
  }
  return taken;
}

}  // namespace

// Signals have their default actions until the program starts: they end this process, and the grant with it.
int RunGrant(const Invocation& invocation) {
  Wishes wishes;
  if (const std::string trouble = Read(invocation, wishes); !trouble.empty()) {
    (void)RefuseUsage("grant", trouble);
    return kOwnFailure;
  }
  const AgentGrant::Taken taken = TakeOrWait(wishes);
  if (taken.grant == nullptr) {
    std::fprintf(stderr, "xpuctl grant: %s\n", Reason(taken.refusal).c_str());
    return kOwnFailure;
  }
  const absl::StatusOr<int> status = RunProgram(
      invocation.program, {absl::StrCat("XPUD_ADDRESS=", taken.grant->address())}, wishes.most_time);
  if (!status.ok()) std::fprintf(stderr, "xpuctl grant: %s\n", Reason(status.status()).c_str());
  if (const absl::Status returned = taken.grant->Return(); !returned.ok()) {
    std::fprintf(stderr, "xpuctl grant: the grant was not returned, and ends by itself: %s\n",
                 Reason(returned).c_str());
  }
  return status.value_or(kOwnFailure);
}

}  // namespace xpud::xpuctl
