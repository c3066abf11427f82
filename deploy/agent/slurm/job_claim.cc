#include "deploy/agent/slurm/job_claim.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/config/byte_size.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/claim_part.h"
#include "proto/base/text.h"

namespace xpud::agent::slurm {
namespace {

constexpr std::string_view kKeyStart = "slurm-";
constexpr size_t kMaxLabel = 253, kMaxShown = 80;
constexpr char kDefaultClass[] = "interactive";

std::string ClassOf(const std::string& asked, const std::string& best, std::vector<std::string>& warnings) {
  const bool is_known = RankOf(asked).has_value();
  if (!asked.empty() && !is_known) {
    warnings.push_back(absl::StrCat("class \"", PrintableText(asked, kMaxShown),
                                    "\" is none of realtime, interactive, batch; the default is used"));
  }
  std::string wanted = is_known ? asked : kDefaultClass;
  if (RankOf(wanted) >= RankOf(best)) return wanted;
  if (is_known) warnings.push_back(absl::StrCat("class ", wanted, " is limited to ", best));
  return best;
}

std::optional<uint64_t> MemoryOf(const std::string& asked, uint32_t share, const Limits& limits,
                                 std::vector<std::string>& warnings) {
  if (asked.empty()) return std::nullopt;
  const std::optional<uint64_t> bytes = ParseBytes(asked);
  if (!bytes || *bytes == 0) {
    warnings.push_back(
        absl::StrCat("memory \"", PrintableText(asked, kMaxShown), "\" is no size; none is kept free"));
    return std::nullopt;
  }
  if (!limits.memory_per_share || *bytes / share < *limits.memory_per_share ||
      *bytes <= share * *limits.memory_per_share)
    return bytes;
  warnings.push_back(absl::StrCat("memory of ", *bytes, " bytes is limited to ", *limits.memory_per_share,
                                  " for each of ", share, " shares"));
  return share * *limits.memory_per_share;
}

}  // namespace

std::string KeyOf(uint32_t job) { return std::string(kKeyStart) + std::to_string(job); }

std::optional<uint32_t> JobOf(std::string_view key) {
  uint32_t job = 0;
  if (!key.starts_with(kKeyStart) || !absl::SimpleAtoi(std::string(key.substr(kKeyStart.size())), &job) ||
      KeyOf(job) != key)
    return std::nullopt;
  return job;
}

v1::Claim ClaimOf(const Job& job, const xpud::slurm::v1::BeginRequest& request, const Limits& limits,
                  std::vector<std::string>& warnings) {
  v1::Claim claim;
  claim.set_key(KeyOf(request.job_id()));
  claim.set_class_(ClassOf(request.class_(), limits.best_class, warnings));
  SetShare(claim, job.share);
  if (const auto memory = MemoryOf(request.memory(), job.share, limits, warnings)) SetMemory(claim, *memory);
  auto& labels = *claim.mutable_labels();
  labels[kEngineLabel] = kSlurmEngine;
  labels["job"] = absl::StrCat(request.job_id());
  labels["user"] =
      request.user().empty() ? absl::StrCat(request.uid()) : PrintableText(request.user(), kMaxLabel);
  if (!job.array.empty()) labels["array"] = PrintableText(job.array, kMaxLabel);
  return claim;
}

}  // namespace xpud::agent::slurm
