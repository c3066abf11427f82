// Profiles as traces for viewers. Both kinds have a process for each device, with a track for each session's
// turns with the daemon (from when the lane turns to a command until it is sent), one for each queue of a
// session on the device, and one for the time in which kernels were compiled. Counters show the memory of
// sessions, of their tenants and of the device. Flows lead from a turn to the work. Pure functions.
#pragma once

#include <string>

#include "tools/xpuctl/profile_data.h"

namespace xpud::xpuctl {

// Chrome's JSON, as PyTorch's profiler writes it: times in microseconds since `baseTimeNanoseconds`.
std::string ChromeTrace(const ProfileData& profile);
// Perfetto's protocol buffers.
std::string PerfettoTrace(const ProfileData& profile);

}  // namespace xpud::xpuctl
