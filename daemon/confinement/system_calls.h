// The system calls that xpud's processes may make: the one table. A call that is not in it, or whose
// arguments match none of its rows, fails with EPERM.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace xpud::confinement {

// Who may make a call, as a set of bits.
using Roles = unsigned;
inline constexpr Roles kDaemon = 1;    // serves clients
inline constexpr Roles kExecutor = 2;  // calls one device's driver
inline constexpr Roles kSpawner = 4;   // starts executors
inline constexpr Roles kEverybody = kDaemon | kExecutor | kSpawner;

// What an argument has to be: (argument & mask) == value, or != value.
struct Condition {
  int argument = -1;  // -1: whatever the arguments are
  uint64_t mask = 0;
  uint64_t value = 0;
  bool equal = true;
};

struct SystemCall {
  std::string_view name;
  int number;
  Roles roles = kEverybody;
  Condition condition = {};
};

std::span<const SystemCall> AllowedCalls();

// Fails with ENOSYS instead, so that libraries take the older call, whose arguments can be looked at.
std::span<const SystemCall> AbsentCalls();

}  // namespace xpud::confinement
