// Sums of a profile, by op and kernel. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/xpuctl/profile_data.h"

namespace xpud::xpuctl {

// The commands of one op with one kernel.
struct ProfileRow {
  std::string op, kernel;
  uint64_t calls = 0;
  uint64_t device_ns = 0;
  uint64_t bytes = 0;
  double operations = 0;
  // The least time in which the device could have moved the bytes and done the operations; 0: not known.
  double least_ns = 0;
};

struct ProfileStats {
  std::vector<ProfileRow> rows;  // that worked on the device, the longest first
  uint64_t device_ns = 0;        // of all of them
  uint64_t span_ns = 0;          // from the first command to the end of the last
  uint64_t estimated = 0;        // of their commands, those whose times were not measured
  uint64_t commands = 0;         // those without work on the device included
  // Time in which commands had arrived and did not run, by why: "compiling", "memory"; a
  // session that ran then ("session 7, python"); "the daemon" for what is left.
  std::map<std::string, uint64_t> waits;
};

ProfileStats StatsOf(const ProfileData& profile);
// A table for people.
std::string StatsText(const ProfileStats& stats);
// One JSON object.
std::string StatsJson(const ProfileStats& stats);

}  // namespace xpud::xpuctl
