#include "deploy/agent/grants/request.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/user.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/claim_part.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent {
namespace {

using grants::v1::GrantRequest;

constexpr uint64_t kDefaultLeaseMs = 60'000;
constexpr size_t kMaxText = 253, kMaxLabels = 8, kMaxLabelName = 63;
constexpr int kMaxDevices = 64;
constexpr char kPrefix[] = "grant-";

// The agent's labels.
constexpr char kUser[] = "user", kUid[] = "uid", kName[] = "name", kPid[] = "pid", kStarted[] = "started",
               kUntil[] = "until";
constexpr std::array<std::string_view, 7> kOwnLabels = {kEngineLabel, kUser,    kUid,  kName,
                                                        kPid,         kStarted, kUntil};
constexpr char kUntilProcess[] = "process", kUntilLease[] = "lease";

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckText(const std::string& what, const std::string& text) {
  if (text.size() > kMaxText) return Refuse(what, " has ", text.size(), " bytes; it may have ", kMaxText);
  if (PrintableText(text) != text) return Refuse(what, " has characters that cannot be printed");
  return absl::OkStatus();
}

absl::Status CheckLabels(const GrantRequest& request) {
  if (request.labels().size() > kMaxLabels)
    return Refuse(request.labels().size(), " labels; a grant may have ", kMaxLabels);
  for (const auto& [name, value] : request.labels()) {
    const bool allowed = std::ranges::all_of(name, [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '/' ||
             c == '-';
    });
    if (name.empty() || name.size() > kMaxLabelName || !allowed) {
      return Refuse("label name \"", PrintableText(name, 80), "\"; it may have 1 to ", kMaxLabelName,
                    " letters, digits and . _ / -");
    }
    if (std::ranges::find(kOwnLabels, name) != kOwnLabels.end())
      return Refuse("the agent sets the label ", name, " itself; use another name");
    RETURN_IF_ERROR(CheckText(absl::StrCat("label ", name), value));
  }
  return absl::OkStatus();
}

absl::Status CheckDevices(const GrantRequest& request) {
  if (request.devices_size() > kMaxDevices)
    return Refuse(request.devices_size(), " devices; it may be ", kMaxDevices);
  std::set<uint32_t> seen;
  for (const uint32_t device : request.devices())
    if (!seen.insert(device).second) return Refuse("device ", device, " is named twice");
  return absl::OkStatus();
}

std::string ClassesFrom(size_t best) {
  const std::vector<std::string> allowed(kClasses.begin() + static_cast<int>(best), kClasses.end());
  return absl::StrJoin(allowed, " or ");
}

absl::Status CompleteClass(GrantRequest& request, const Budget* budget, const std::string& user) {
  const size_t best = budget != nullptr ? *RankOf(budget->best_class) : 0;
  if (request.class_().empty()) request.set_class_(std::string(kClasses[std::max<size_t>(best, 1)]));
  const std::optional<size_t> rank = RankOf(request.class_());
  if (!rank) {
    return Refuse("class \"", PrintableText(request.class_(), 64),
                  "\"; it may be realtime, interactive or batch");
  }
  if (*rank >= best) return absl::OkStatus();
  return NeverAllowed(
      absl::StrCat("class ", request.class_(), " was asked; ", user, " may have ", ClassesFrom(best)));
}

// FNV-1a: the same in each agent. A user who finds two names of one hash has one grant for both.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

uint64_t Random() {
  uint64_t number = 0;
  XPUD_CHECK(getrandom(&number, sizeof(number), 0) == sizeof(number));
  return number;
}

}  // namespace

std::string UserText(uint32_t uid) {
  const std::string name = PrintableText(UserName(uid), 64);
  return name == absl::StrCat(uid) ? absl::StrCat("uid ", uid)
                                   : absl::StrCat("user ", name, " (uid ", uid, ")");
}

absl::Status CheckLease(uint64_t lease_ms, const Budget* budget, const std::string& user) {
  if (lease_ms == 0) return absl::OkStatus();
  if (lease_ms < Budget::kMinLeaseMs || lease_ms > Budget::kMaxLeaseMs) {
    return Refuse("lease_ms ", lease_ms, "; it may be ", Budget::kMinLeaseMs, " to ", Budget::kMaxLeaseMs,
                  " (30 days), or 0 for the default");
  }
  if (budget == nullptr || lease_ms <= budget->lease_ms) return absl::OkStatus();
  return NeverAllowed(absl::StrCat("a lease of ", lease_ms, " ms was asked; ", user, " may have ",
                                   budget->lease_ms, " ms at a time; renew it more often"));
}

absl::Status Complete(GrantRequest& request, const Budget* budget, const std::string& user) {
  if (request.share() < 1 || request.share() > kMaxShare)
    return Refuse("share ", request.share(), "; it may be 1 to ", kMaxShare);
  if (request.has_memory_bytes() && request.memory_bytes() == 0)
    return Refuse("memory_bytes 0; it must be above 0, or unset");
  if (!request.has_memory_bytes() && budget != nullptr && budget->memory)
    return Refuse("memory_bytes is unset; ", user,
                  " has to say how much, because agent.yaml limits its memory");
  RETURN_IF_ERROR(CheckText("name", request.name()));
  RETURN_IF_ERROR(CheckLabels(request));
  RETURN_IF_ERROR(CheckDevices(request));
  RETURN_IF_ERROR(CompleteClass(request, budget, user));
  RETURN_IF_ERROR(CheckLease(request.lease_ms(), budget, user));
  if (request.lease_ms() == 0 && !request.until_caller_ends()) {
    request.set_lease_ms(budget != nullptr ? std::min(kDefaultLeaseMs, budget->lease_ms) : kDefaultLeaseMs);
  }
  return absl::OkStatus();
}

std::string KeyOf(uint32_t uid, std::string_view name) {
  const uint64_t number = name.empty() ? Random() : HashOf(name);
  return absl::StrCat(kPrefix, uid, "-", absl::Hex(number, absl::kZeroPad16));
}

std::optional<uint32_t> OwnerOf(std::string_view key) {
  if (!key.starts_with(kPrefix)) return std::nullopt;
  key.remove_prefix(sizeof(kPrefix) - 1);
  const size_t dash = key.find('-');
  if (dash == key.npos || key.size() - dash - 1 != 16) return std::nullopt;
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const std::string digits(key.substr(0, dash));
  uint32_t uid = 0;
  if (!std::ranges::all_of(key.substr(dash + 1), is_hex) || !absl::SimpleAtoi(digits, &uid) ||
      absl::StrCat(uid) != digits)
    return std::nullopt;
  return uid;
}

v1::Claim ClaimOf(const GrantRequest& request, const std::string& key, uint32_t uid,
                  const std::optional<ProcessName>& process) {
  v1::Claim claim;
  claim.set_key(key);
  *claim.mutable_devices() = request.devices();
  claim.set_class_(request.class_());
  SetShare(claim, request.share());
  if (request.has_memory_bytes()) SetMemory(claim, request.memory_bytes());
  claim.set_door_uid(uid);
  auto& labels = *claim.mutable_labels();
  labels = request.labels();
  labels[kEngineLabel] = kGrantsEngine;
  labels[kUser] = PrintableText(UserName(uid), kMaxText);
  labels[kUid] = absl::StrCat(uid);
  if (!request.name().empty()) labels[kName] = request.name();
  if (process) {
    labels[kPid] = absl::StrCat(process->pid);
    labels[kStarted] = process->started;
  }
  labels[kUntil] = request.lease_ms() == 0 ? kUntilProcess : kUntilLease;
  claim.set_lifetime_ms(request.lease_ms() == 0 ? kProcessLeaseMs : request.lease_ms());
  return claim;
}

std::string DifferencesOf(const v1::Claim& claim, const v1::Claim& wanted) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, bool same) {
    if (!same) names.emplace_back(name);
  };
  compare("share", claim.weight() == wanted.weight());
  compare("memory_bytes", claim.has_memory_most_bytes() == wanted.has_memory_most_bytes() &&
                              claim.memory_most_bytes() == wanted.memory_most_bytes());
  compare("class", claim.class_() == wanted.class_());
  compare("devices", wanted.devices().empty() || std::ranges::equal(claim.devices(), wanted.devices()));
  compare("name", LabelOf(claim, kName) == LabelOf(wanted, kName));
  compare("until_caller_ends", ProcessOf(claim) == ProcessOf(wanted));
  const auto labels = StateOf(claim).labels(), others = StateOf(wanted).labels();
  compare("labels", labels.size() == others.size() && std::ranges::all_of(labels, [&](const auto& label) {
                      const auto found = others.find(label.first);
                      return found != others.end() && found->second == label.second;
                    }));
  return absl::StrJoin(names, ", ");
}

std::optional<ProcessName> ProcessOf(const v1::Claim& claim) {
  ProcessName process;
  process.started = LabelOf(claim, kStarted);
  if (!absl::SimpleAtoi(LabelOf(claim, kPid), &process.pid) || process.pid <= 0 || process.started.empty())
    return std::nullopt;
  return process;
}

bool AgentRenews(const v1::Claim& claim) { return LabelOf(claim, kUntil) == kUntilProcess; }

std::string AddressOf(const v1::Claim& claim) { return claim.user_door() + "/xpud.sock"; }

grants::v1::GrantState StateOf(const v1::Claim& claim) {
  grants::v1::GrantState state;
  state.set_grant(claim.key());
  state.set_name(LabelOf(claim, kName));
  state.set_address(AddressOf(claim));
  state.set_share(claim.weight());
  if (claim.has_memory_most_bytes()) state.set_memory_bytes(claim.memory_most_bytes());
  state.set_class_(claim.class_());
  *state.mutable_devices() = claim.devices();
  state.set_expires_in_ms(claim.expires_in_ms());
  if (const auto process = ProcessOf(claim)) state.set_pid(static_cast<uint32_t>(process->pid));
  state.set_sessions(claim.sessions());
  *state.mutable_labels() = claim.labels();
  for (const std::string_view name : kOwnLabels) state.mutable_labels()->erase(std::string(name));
  return state;
}

}  // namespace xpud::agent
