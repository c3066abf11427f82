// What xpud-node-agent reads of Slurm: the first byte selects a job's record of scontrol, with a request for
// its claim; the list of squeue; or a list of hosts.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/slurm/job_claim.h"
#include "deploy/agent/slurm/jobs.h"
#include "deploy/agent/slurm/slurm.pb.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/claim.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace xpud::fuzz {
namespace {

using namespace agent::slurm;

constexpr uint32_t kJob = 17;
constexpr char kNode[] = "a1";

void Request(const Job& job, const xpud::slurm::v1::BeginRequest& request, const Limits& limits) {
  std::vector<std::string> warnings;
  const v1::Claim claim = ClaimOf(job, request, limits, warnings);
  XPUD_CHECK(JobOf(claim.key()) == request.job_id());
  XPUD_CHECK(claim.weight() == job.share);
  XPUD_CHECK(agent::RankOf(claim.class_()).has_value());
  XPUD_CHECK(agent::RankOf(claim.class_()) >= agent::RankOf(limits.best_class));
  if (limits.memory_per_share) XPUD_CHECK(claim.memory_least_bytes() / job.share <= *limits.memory_per_share);
  CheckTaken(claim, 1);
  for (const std::string& warning : warnings)
    XPUD_CHECK(!warning.empty() && PrintableText(warning) == warning);
}

void Record(Bytes& input) {
  const Limits limits{
      .best_class = std::string(agent::kClasses[input.Take<uint8_t>() % 3]),
      .memory_per_share = input.Take<uint8_t>() % 2 == 0 ? std::optional<uint64_t>(1 << 20) : std::nullopt};
  const auto length = std::min<size_t>(input.Take<uint8_t>(), input.rest().size());
  const std::span<const std::byte> bytes = input.Take(length);
  xpud::slurm::v1::BeginRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto job = ParseJob(input.text(), kJob, kNode);
  if (!job.ok()) {
    XPUD_CHECK(absl::IsNotFound(job.status()) || absl::IsFailedPrecondition(job.status()));
    XPUD_CHECK(!job.status().message().empty());
    return;
  }
  XPUD_CHECK(job->share <= agent::kMaxShare);
  // A record that is longer by the same record can be read in several ways.
  const std::string record(input.text());
  XPUD_CHECK(!ParseJob(record + "\n" + record, kJob, kNode).ok());
  if (job->share > 0) Request(*job, request, limits);
}

void List(std::string_view text) {
  const auto jobs = ParseList(text);
  if (!jobs.ok()) {
    XPUD_CHECK(absl::IsInternal(jobs.status()));
    const std::string message(jobs.status().message());
    XPUD_CHECK(PrintableText(message) == message);
    return;
  }
  XPUD_CHECK(jobs->size() <= text.size() / sizeof("1 R 1") + 1);
  for (const auto& [id, job] : *jobs) {
    XPUD_CHECK(JobOf(KeyOf(id)) == id);
    XPUD_CHECK(job.holds || !job.runs);
  }
}

// A host that is in a list stays so when another is put before it.
void Hosts(std::string_view text) {
  const size_t end = text.find('\n');
  const std::string host(text.substr(0, end));
  const std::string list(end == std::string_view::npos ? "" : text.substr(end + 1));
  XPUD_CHECK(!HostListHas(list, ""));
  if (!HostListHas(list, host)) return;
  XPUD_CHECK(HostListHas("other," + list, host));
  // Without brackets a list is its names.
  if (list.find_first_of("[]") == std::string::npos)
    XPUD_CHECK(("," + list + ",").find("," + host + ",") != std::string::npos);
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  QuietProtobuf();
  Bytes input(data, size);
  switch (input.Take<uint8_t>() % 4) {
    case 0:
      List(input.text());
      break;
    case 1:
      Hosts(input.text());
      break;
    default:
      Record(input);
  }
  return 0;
}
