#include "daemon/tenant/claim.h"

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud {
namespace {

constexpr std::array<std::string_view, 3> kClasses = {"realtime", "interactive", "batch"};

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckDevices(const std::vector<uint32_t>& devices, size_t count) {
  if (devices.empty()) return Refuse("a claim needs a device; there are ", count);
  std::set<uint32_t> seen;
  for (const uint32_t device : devices) {
    if (device >= count) return Refuse("there is no device ", device, "; there are ", count, ", from 0");
    if (!seen.insert(device).second) return Refuse("device ", device, " is named twice");
  }
  return absl::OkStatus();
}

absl::Status CheckTime(const TimeGrant& time) {
  if (time.weight < 1 || time.weight > TimeGrant::kMaxWeight)
    return Refuse("weight ", time.weight, "; it may be 1 to ", TimeGrant::kMaxWeight);
  if (time.most < 1 || time.most > TimeGrant::kWhole || time.least > TimeGrant::kWhole)
    return Refuse("time ", PercentText(time.least), "..", PercentText(time.most),
                  "; least may be 0% to 100%, most 0.01% to 100%");
  if (time.least > time.most)
    return Refuse("time ", PercentText(time.least), "..", PercentText(time.most), ": least is above most");
  return absl::OkStatus();
}

absl::Status CheckLabels(const std::map<std::string, std::string>& labels) {
  if (labels.size() > Claim::kMaxLabels)
    return Refuse(labels.size(), " labels; a claim may have ", Claim::kMaxLabels);
  for (const auto& [name, value] : labels) {
    const bool allowed = std::ranges::all_of(name, [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '/' ||
             c == '-';
    });
    if (name.empty() || name.size() > Claim::kMaxLabelName || !allowed) {
      return Refuse("label name \"", PrintableText(name, 80), "\"; it may have 1 to ", Claim::kMaxLabelName,
                    " letters, digits and . _ / -");
    }
    if (value.size() > Claim::kMaxLabelValue)
      return Refuse("label ", name, " has ", value.size(), " bytes; it may have ", Claim::kMaxLabelValue);
    if (PrintableText(value) != value)
      return Refuse("label ", name, " has characters that cannot be printed");
  }
  return absl::OkStatus();
}

absl::Status CheckHolders(const std::vector<Tenant>& holders) {
  if (holders.size() > Claim::kMaxHolders)
    return Refuse(holders.size(), " users and tenants of gateways; a claim may have ", Claim::kMaxHolders);
  std::set<Tenant> seen;
  for (const Tenant& holder : holders) {
    if (!holder.claim.empty()) return Refuse("a claim cannot have a claim");
    if (holder.name.size() > Claim::kMaxLabelValue || PrintableText(holder.name) != holder.name)
      return Refuse("no gateway has a tenant \"", PrintableText(holder.name, 64), "\"");
    if (!seen.insert(holder).second) return Refuse(holder.Text(), " is named twice");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKey(std::string_view key) {
  const auto may_begin = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const bool allowed =
      !key.empty() && key.size() <= Claim::kMaxKey && may_begin(key[0]) &&
      std::ranges::all_of(key, [&](char c) { return may_begin(c) || c == '.' || c == '_' || c == '-'; });
  if (allowed) return absl::OkStatus();
  return Refuse("key \"", PrintableText(key, 80), "\"; it may have 1 to ", Claim::kMaxKey,
                " lower-case letters, digits and . _ -, and begins with a letter or a digit");
}

absl::Status CheckClaim(const Claim& claim, size_t devices) {
  RETURN_IF_ERROR(CheckKey(claim.key));
  RETURN_IF_ERROR(CheckDevices(claim.devices, devices));
  RETURN_IF_ERROR(CheckTime(claim.time));
  if (claim.memory_most && *claim.memory_most == 0) return Refuse("memory most 0; it must be above 0");
  if (claim.memory_most && claim.memory_least > *claim.memory_most) {
    return Refuse("memory ", claim.memory_least, "..", *claim.memory_most, " bytes: least is above most");
  }
  if (claim.sessions_most && (*claim.sessions_most < 1 || *claim.sessions_most > Claim::kMaxSessions))
    return Refuse(*claim.sessions_most, " sessions; it may be 1 to ", Claim::kMaxSessions);
  if (claim.lifetime_ms > Claim::kMaxLifetimeMs)
    return Refuse("a lifetime of ", claim.lifetime_ms, " ms; it may be ten years, ", Claim::kMaxLifetimeMs);
  RETURN_IF_ERROR(CheckLabels(claim.labels));
  return CheckHolders(claim.holders);
}

std::string_view NameOf(PriorityClass priority) { return kClasses[static_cast<size_t>(priority)]; }

std::optional<PriorityClass> PriorityClassOf(std::string_view name) {
  const auto found = std::ranges::find(kClasses, name);
  if (found == kClasses.end()) return std::nullopt;
  return static_cast<PriorityClass>(found - kClasses.begin());
}

std::string PercentText(uint32_t hundredths) {
  const uint32_t part = hundredths % 100;
  if (part == 0) return absl::StrCat(hundredths / 100, "%");
  return absl::StrCat(hundredths / 100,
                      part % 10 == 0 ? "."
                      : part < 10    ? ".0"
                                     : ".",
                      part % 10 == 0 ? part / 10 : part, "%");
}

}  // namespace xpud
