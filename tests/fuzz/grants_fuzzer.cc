// Requests for grants at the agent's socket. The first byte selects: bytes as a GrantRequest of a user with
// or without a budget, or bytes as the id of a grant.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/tenant/claim.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/grants/budget.h"
#include "deploy/agent/grants/request.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/claim.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace xpud::fuzz {
namespace {

constexpr uint32_t kUid = 61'001;
const char kUser[] = "user";

void CheckRefusal(const absl::Status& status) {
  XPUD_CHECK(absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status));
  const std::string text(status.message());
  XPUD_CHECK(!text.empty() && PrintableText(text) == text);
}

void Request(Bytes& input) {
  const agent::Budget budget{
      .share = 1 + input.Take<uint8_t>() % 100u,
      .memory = input.Take<uint8_t>() % 2 == 0 ? std::optional<uint64_t>(1 << 20) : std::nullopt,
      .best_class = std::string(agent::kClasses[input.Take<uint8_t>() % 3]),
      .lease_ms = uint64_t{1000} + input.Take<uint16_t>()};
  const bool limited = input.Take<uint8_t>() % 2 == 0;
  grants::v1::GrantRequest request;
  if (!request.ParseFromArray(input.rest().data(), static_cast<int>(input.rest().size()))) return;
  const absl::Status status = agent::Complete(request, limited ? &budget : nullptr, kUser);
  if (!status.ok()) return CheckRefusal(status);
  std::optional<agent::ProcessName> process;
  if (request.until_caller_ends()) process = {.pid = 7, .started = "boot-1"};
  const std::string key = agent::KeyOf(kUid, request.name());
  const v1::Claim claim = agent::ClaimOf(request, key, kUid, process);
  CheckTaken(claim);
  XPUD_CHECK(agent::RankOf(claim.class_()).has_value());
  XPUD_CHECK(agent::OwnerOf(key) == kUid && claim.labels().at("uid") == std::to_string(kUid));
  XPUD_CHECK(claim.labels().at("engine") == agent::kGrantsEngine);
  XPUD_CHECK(agent::ProcessOf(claim) == process && claim.lifetime_ms() != 0);
  XPUD_CHECK(agent::DifferencesOf(claim, claim).empty());
  XPUD_CHECK(agent::StateOf(claim).name() == request.name());
  if (!limited) return;
  XPUD_CHECK(agent::RankOf(claim.class_()) >= agent::RankOf(budget.best_class));
  XPUD_CHECK(agent::AgentRenews(claim) || claim.lifetime_ms() <= budget.lease_ms);
  const absl::Status admitted = agent::Usage({}, kUid).Admit(request, budget, kUser);
  if (!admitted.ok()) return CheckRefusal(admitted);
  XPUD_CHECK(claim.weight() <= budget.share &&
             claim.memory_most_bytes() <= budget.memory.value_or(UINT64_MAX));
  v1::Claim held = claim;
  if (held.devices().empty()) held.add_devices(0);
  const bool once_more = agent::Usage({held}, kUid).Admit(request, budget, kUser).ok();
  XPUD_CHECK(!once_more || 2 * claim.weight() <= budget.share);
}

void Id(std::string_view text) {
  const std::optional<uint32_t> owner = agent::OwnerOf(text);
  if (!owner) return;
  XPUD_CHECK(CheckKey(text).ok());
  XPUD_CHECK(text.starts_with("grant-" + std::to_string(*owner) + "-"));
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  QuietProtobuf();
  Bytes input(data, size);
  if (input.Take<uint8_t>() % 4 == 0) {
    Id(input.text());
  } else {
    Request(input);
  }
  return 0;
}
