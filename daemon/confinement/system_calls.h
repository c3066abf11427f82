// The table of system calls that xpud's processes may make. A call fails with EPERM if it is not in the
// table, or if its arguments match none of its rows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace xpud::confinement {

// The processes that may make a call, as a set of bits.
using Roles = unsigned;
inline constexpr Roles kDaemon = 1;    // serves clients
inline constexpr Roles kExecutor = 2;  // calls one device's driver
inline constexpr Roles kSpawner = 4;   // starts executors
inline constexpr Roles kCompiler = 8;  // compiles what clients define
inline constexpr Roles kEverybody = kDaemon | kExecutor | kSpawner;

// The condition on an argument: (argument & mask) == value, or != value.
struct Condition {
  int argument = -1;  // -1: no condition
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

// Calls that fail with ENOSYS, so that libraries fall back to an older call whose arguments the filter can
// inspect.
std::span<const SystemCall> AbsentCalls();

}  // namespace xpud::confinement
