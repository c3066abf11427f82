// Jobs' claims: their keys, labels and values. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/agent/slurm/jobs.h"
#include "deploy/agent/slurm/slurm.pb.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent::slurm {

inline constexpr char kSlurmEngine[] = "slurm";
// The label of a claim that is paused because its job is suspended; not one that an operator has paused.
inline constexpr char kSuspendedLabel[] = "suspended";

// What jobs may have on this node.
struct Limits {
  std::string best_class = "interactive";
  std::optional<uint64_t> memory_per_share = {};  // nullopt: no limit
};

// "slurm-17".
std::string KeyOf(uint32_t job);
// The job of a key; nullopt if it is not one of these.
std::optional<uint32_t> JobOf(std::string_view key);

// The claim of a job that has a share. Options that are not allowed are limited or left out, and `warnings`
// says which. REQUIRES: job.share is from 1 to 100.
v1::Claim ClaimOf(const Job& job, const xpud::slurm::v1::BeginRequest& request, const Limits& limits,
                  std::vector<std::string>& warnings);

}  // namespace xpud::agent::slurm
