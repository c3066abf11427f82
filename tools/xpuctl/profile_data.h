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

// How the memory of the sessions' tenants on a device changed, and the device's own, oldest first.
struct DeviceHistory {
  uint32_t device = 0;
  std::vector<v1::MemorySample> samples;
};

struct ProfileData {
  int64_t unix_ns = 0;              // of the machine's clock at `time_ns`
  uint64_t time_ns = 0;             // of the monotonic clock, when the profile was read
  std::vector<v1::Device> devices;  // by number
  std::vector<ProfiledSession> sessions;
  std::vector<DeviceHistory> memory;  // empty: an older daemon, or a user who is no operator
};

}  // namespace xpud::xpuctl
