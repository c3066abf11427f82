// What the test and the driver between Level Zero's loader and ours share: which call fails, and how. In a
// file that both map, since executors are processes of their own.
#pragma once

#include <atomic>
#include <cstdint>

namespace xpud::inject {

inline constexpr char kPlanVariable[] = "XPUD_INJECT_PLAN";  // names the file

struct Plan {
  // The test's.
  std::atomic<uint64_t> fails;   // the number of the call that fails, from 1; 0: none
  std::atomic<uint32_t> result;  // a ze_result_t
  std::atomic<uint32_t> sticks;  // all later calls of that process fail so, too
  // The driver's.
  std::atomic<uint64_t> calls;
  std::atomic<uint32_t> failed_in;  // the process where it failed; 0: not yet
  char failed_call[60];
};

}  // namespace xpud::inject
