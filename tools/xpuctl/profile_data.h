// What `xpuctl profile` reads of a daemon. Values.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/control/xpud.pb.h"

namespace xpud::xpuctl {

// The commands of one session on one device, oldest first.
struct ProfiledSession {
  v1::ProfileInfo info;
  std::vector<v1::ProfiledCommand> commands;
};

struct ProfileData {
  int64_t unix_ns = 0;              // of the machine's clock at `time_ns`
  uint64_t time_ns = 0;             // of the monotonic clock, when the profile was read
  std::vector<v1::Device> devices;  // by number
  std::vector<ProfiledSession> sessions;
};

}  // namespace xpud::xpuctl
