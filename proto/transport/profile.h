// A session's own profile, as the daemon sends it when the client stops one (kStopProfile in requests.h): a
// memfd with a ProfileHeader, the commands, and the names of kernels, each ended by a NUL. Times are on the
// monotonic clock, in nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"
#include "proto/wire/commands.h"

namespace xpud::transport {

struct ProfileHeader {
  uint64_t commands;
  uint64_t overwritten;  // older commands, which are not kept
  uint64_t names;
  uint64_t name_bytes;
};
static_assert(sizeof(ProfileHeader) == 32);

struct ProfileRecord {
  uint64_t sequence;
  uint64_t decoded_ns;          // when the daemon turned to it
  uint64_t began_ns, ended_ns;  // on the device; 0: it did nothing there, or has not ended
  uint64_t device_ns;           // less than ended - began if others ran in between
  uint64_t bytes;               // read and written
  uint32_t kernel;              // the number of its first kernel's name; name 0 is empty
  wire::CommandKind kind;
  uint16_t row;       // of an op: its wire number
  uint16_t launches;  // kernels
  uint16_t queue;
  uint16_t refused;  // 1: it did not run
};
static_assert(sizeof(ProfileRecord) == 64);

// The most commands that a session may ask to keep on a device.
inline constexpr uint64_t kMaxProfileCommands = 1'000'000;

struct SessionProfile {
  std::vector<ProfileRecord> records;
  std::vector<std::string> names;
  uint64_t overwritten = 0;
};

// Returns a sealed memfd that holds the profile.
absl::StatusOr<UniqueFd> WriteProfile(const SessionProfile& profile);
// Returns Internal if `memory` does not hold a profile. Numbers of names are in range.
absl::StatusOr<SessionProfile> ReadProfile(const UniqueFd& memory);

}  // namespace xpud::transport
