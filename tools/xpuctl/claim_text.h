// Claims as people read and write them. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/control/xpud.pb.h"
#include "tools/xpuctl/host_list.h"

namespace xpud::xpuctl {

// "8GiB..20GiB", "30%..", "..50%", ".." or one value for both; the values as `parse` takes them.
struct TextRange {
  std::string least, most;  // empty: none
};
TextRange SplitRange(const std::string& text);
// "30%" or "12.5%" in hundredths of a per cent.
std::optional<uint32_t> ParsePercent(const std::string& text);
// "90s", "15m", "2h" or "7d" in milliseconds.
std::optional<uint64_t> ParseLifetime(const std::string& text);

// A claim's field and its value: "time" and "30%..".
using ClaimFields = std::vector<std::pair<std::string, std::string>>;
// What was granted.
ClaimFields GrantedFields(const v1::Claim& claim);
// "weight 100 to 50, time ..50% to ..30%"; "no change".
std::string ChangeText(const v1::Claim& before, const v1::Claim& after);
// Every field, a line each.
std::string ClaimText(const v1::Claim& claim);

// The table. `before`: an earlier sample, from which the use of time follows; null: there is none.
std::string ClaimsText(const v1::ListClaimsResponse& list, const v1::ListClaimsResponse* before, bool wide);

}  // namespace xpud::xpuctl
