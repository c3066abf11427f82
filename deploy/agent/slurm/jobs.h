// What Slurm's controller says of jobs, by its programs scontrol and squeue. Thread-safe.
//
// A job's name, folder and comment are the user's words, and may contain what looks like an answer of
// scontrol. So a record is used only if it can be read in one way. The list of jobs has numbers and states
// alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace xpud::agent::slurm {

// What a job has on this node.
struct Job {
  uint32_t share = 0;      // the count of gres/xpud that the controller has allocated; 0: none
  std::string array = {};  // "17_3": the array and the task's index; empty: it is of no array

  bool operator==(const Job&) const = default;
};

// A job in the list.
struct ListedJob {
  uint32_t uid = 0;
  bool runs = false;   // or is suspended: it has a claim
  bool holds = false;  // it begins, runs or is ending: a claim that it has stays

  bool operator==(const ListedJob&) const = default;
};

// Reads what `scontrol show job -d -o ID` prints: one record, or those of an array or of a heterogeneous job.
// Returns NotFound if there is no record of the job, and FailedPrecondition if it can be read in several
// ways, if none of its parts is on the node, or if the share is not from 1 to 100.
absl::StatusOr<Job> ParseJob(std::string_view text, uint32_t job, std::string_view node);
// Reads what `squeue --format=kJobFormat` prints. Returns Internal if a line is not as it should be.
absl::StatusOr<std::map<uint32_t, ListedJob>> ParseList(std::string_view text);
inline constexpr char kJobFormat[] = "%A %T %U";

// Whether a list of hosts, such as "a[01-03,7]-gpu,b", has this one. False for what is no such list.
bool HostListHas(std::string_view list, std::string_view host);

class Jobs {
 public:
  struct Options {
    std::string scontrol, squeue;               // paths
    std::string node;                           // this machine's name in Slurm
    std::chrono::milliseconds patience{8'000};  // for each
  };
  explicit Jobs(Options options) : options_(std::move(options)) {}

  // Beyond the errors of ParseJob: those of RunCommand.
  absl::StatusOr<Job> Ask(uint32_t job) const;
  // The jobs of this node, those that have ended lately too.
  absl::StatusOr<std::map<uint32_t, ListedJob>> List() const;

 private:
  const Options options_;
};

}  // namespace xpud::agent::slurm
