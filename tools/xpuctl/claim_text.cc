#include "tools/xpuctl/claim_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/base/text.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

constexpr uint32_t kWhole = 10'000;  // hundredths of a per cent
constexpr double kMaxRatio = 1e9;

// Without zeros at the end: "12.5", "8".
std::string Plain(double number, int decimals) {
  std::string text = absl::StrFormat("%.*f", decimals, number);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string PercentCell(uint32_t hundredths) { return Plain(hundredths / 100.0, 2) + "%"; }

std::string RangeText(const std::string& least, const std::string& most) {
  return least.empty() && most.empty() ? "any" : absl::StrCat(least, "..", most);
}

std::string TimeText(const v1::Claim& claim) {
  const bool capped = claim.time_most() != 0 && claim.time_most() != kWhole;
  return RangeText(claim.time_least() == 0 ? "" : PercentCell(claim.time_least()),
                   capped ? PercentCell(claim.time_most()) : "");
}

std::string MemoryText(const v1::Claim& claim) {
  const auto size = [](uint64_t bytes) { return Bytes(static_cast<double>(bytes)); };
  return RangeText(claim.memory_least_bytes() == 0 ? "" : size(claim.memory_least_bytes()),
                   claim.has_memory_most_bytes() ? size(claim.memory_most_bytes()) : "");
}

// "6.2 of 8..20 GiB", with one unit for all.
std::string MemoryCell(const v1::Claim& claim) {
  const uint64_t most = claim.memory_most_bytes(), least = claim.memory_least_bytes();
  if (most == 0 && least == 0) return Bytes(static_cast<double>(claim.memory_bytes()));
  const uint64_t largest = std::max({most, least, claim.memory_bytes()});
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double scale = 1;
  while (static_cast<double>(largest) / scale >= 1024 && unit + 1 < kUnits.size()) {
    scale *= 1024;
    ++unit;
  }
  const auto number = [&](uint64_t bytes) { return Plain(static_cast<double>(bytes) / scale, 1); };
  return absl::StrCat(number(claim.memory_bytes()), " of ", least == 0 ? "" : number(least), "..",
                      most == 0 ? "" : number(most), " ", kUnits[unit]);
}

std::string StateOf(const v1::Claim& claim) {
  return claim.ends() ? "ending" : claim.paused() ? "paused" : claim.drained() ? "drained" : "running";
}

std::string LabelsText(const v1::Claim& claim) {
  const std::map<std::string, std::string> sorted(claim.labels().begin(), claim.labels().end());
  return absl::StrJoin(sorted, ",", absl::PairFormatter("="));
}

std::string HoldersText(const v1::Claim& claim) {
  std::vector<std::string> names;
  for (const v1::Holder& holder : claim.holders()) {
    const std::string& tenant = holder.tenant_name();
    names.push_back(UserName(holder.uid()) + (tenant.empty() ? "" : "/" + tenant));
  }
  return absl::StrJoin(names, ",");
}

std::string LifetimeText(uint64_t ms) { return ms == 0 ? "for ever" : Duration(ms * 1'000'000); }

// The part of the claim's devices that it used between two samples.
std::string UseCell(const v1::Claim& claim, uint64_t time_ns, const v1::ListClaimsResponse* before) {
  if (before == nullptr || time_ns <= before->time_ns() || claim.devices().empty()) return "-";
  for (const v1::Claim& earlier : before->claims()) {
    if (earlier.key() != claim.key() || earlier.busy_ns() > claim.busy_ns()) continue;
    const double time = static_cast<double>(time_ns - before->time_ns()) * claim.devices_size();
    return Percent(static_cast<double>(claim.busy_ns() - earlier.busy_ns()) / time);
  }
  return "-";
}

}  // namespace

TextRange SplitRange(const std::string& text) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) return {text, text};
  return {text.substr(0, dots), text.substr(dots + 2)};
}

std::optional<uint32_t> ParsePercent(const std::string& text) {
  double number = 0;
  if (!text.ends_with('%') || !absl::SimpleAtod(text.substr(0, text.size() - 1), &number))
    return std::nullopt;
  const double hundredths = number * 100;
  if (!(hundredths >= 0 && hundredths <= kMaxRatio) || std::abs(hundredths - std::round(hundredths)) > 1e-6)
    return std::nullopt;
  return static_cast<uint32_t>(std::lround(hundredths));
}

std::optional<uint64_t> ParseLifetime(const std::string& text) {
  constexpr std::array<std::pair<char, uint64_t>, 4> kUnits = {
      {{'s', 1'000}, {'m', 60'000}, {'h', 3'600'000}, {'d', 86'400'000}}};
  for (const auto& [unit, ms] : kUnits) {
    uint32_t number = 0;
    if (text.ends_with(unit) && absl::SimpleAtoi(text.substr(0, text.size() - 1), &number) && number != 0)
      return number * ms;
  }
  return std::nullopt;
}

ClaimFields GrantedFields(const v1::Claim& claim) {
  return {{"class", claim.class_()},
          {"weight", absl::StrCat(claim.weight())},
          {"devices", absl::StrJoin(claim.devices(), ",")},
          {"time", TimeText(claim)},
          {"memory", MemoryText(claim)},
          {"sessions", claim.has_sessions_most() ? absl::StrCat(claim.sessions_most()) : "any"},
          {"labels", LabelsText(claim)},
          {"users", HoldersText(claim)},
          {"door's user", claim.has_door_uid() ? UserName(claim.door_uid()) : ""},
          {"lifetime", LifetimeText(claim.lifetime_ms())},
          {"paused", claim.paused() ? "yes" : "no"},
          {"drained", claim.drained() ? "yes" : "no"}};
}

std::string ChangeText(const v1::Claim& before, const v1::Claim& after) {
  const ClaimFields from = GrantedFields(before), to = GrantedFields(after);
  std::vector<std::string> changes;
  const auto shown = [](const std::string& value) { return value.empty() ? "none" : PrintableText(value); };
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].second == to[i].second) continue;
    changes.push_back(absl::StrCat(from[i].first, " ", shown(from[i].second), " to ", shown(to[i].second)));
  }
  return changes.empty() ? "no change" : absl::StrJoin(changes, ", ");
}

std::string ClaimText(const v1::Claim& claim) {
  ClaimFields fields = {{"claim", claim.key()}, {"state", StateOf(claim)}};
  for (auto& field : GrantedFields(claim)) fields.push_back(std::move(field));
  fields.emplace_back("sessions open", absl::StrCat(claim.sessions()));
  fields.emplace_back("memory held", Bytes(static_cast<double>(claim.memory_bytes())));
  fields.emplace_back("device time", Duration(claim.busy_ns()));
  if (claim.has_expires_in_ms())
    fields.emplace_back("expires in", Duration(claim.expires_in_ms() * 1'000'000));
  fields.emplace_back("kept", claim.kept() ? "yes" : "no");
  fields.emplace_back("door", claim.door());
  if (!claim.user_door().empty()) fields.emplace_back("user's door", claim.user_door());
  std::string text;
  for (const auto& [name, value] : fields)
    text += absl::StrFormat("%-14s %s\n", name, value.empty() ? "-" : PrintableText(value));
  return text;
}

std::string ClaimsText(const v1::ListClaimsResponse& list, const v1::ListClaimsResponse* before, bool wide) {
  std::vector<std::string> headings = {"CLAIM", "CLASS", ">WEIGHT", "DEVICES", ">SESSIONS",
                                       ">TIME", ">USES", "MEMORY",  "STATE"};
  if (wide) headings.insert(headings.end(), {"EXPIRES", "KEPT", "USERS", "LABELS", "DOOR"});
  Table table(std::move(headings));
  for (const v1::Claim& claim : list.claims()) {
    std::string sessions = absl::StrCat(claim.sessions());
    if (claim.has_sessions_most()) absl::StrAppend(&sessions, " of ", claim.sessions_most());
    std::vector<std::string> cells = {claim.key(),
                                      claim.class_(),
                                      absl::StrCat(claim.weight()),
                                      absl::StrJoin(claim.devices(), ","),
                                      sessions,
                                      TimeText(claim),
                                      UseCell(claim, list.time_ns(), before),
                                      MemoryCell(claim),
                                      StateOf(claim)};
    if (wide) {
      cells.push_back(claim.has_expires_in_ms() ? Duration(claim.expires_in_ms() * 1'000'000) : "never");
      cells.emplace_back(claim.kept() ? "yes" : "no");
      cells.push_back(HoldersText(claim));
      cells.push_back(LabelsText(claim));
      cells.push_back(claim.door());
    }
    table.Add(std::move(cells));
  }
  std::string text = table.ToString();
  if (!wide) return text;
  for (const v1::Guaranteeable& left : list.guaranteeable()) {
    absl::StrAppend(&text, "device ", left.device(), ": ", Bytes(static_cast<double>(left.memory_bytes())),
                    " and ", PercentCell(left.time()), " of its time can still be guaranteed\n");
  }
  return text;
}

}  // namespace xpud::xpuctl
