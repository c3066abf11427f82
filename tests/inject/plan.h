// The data that the test shares with the injecting driver: which call fails, and how. In a file that both
// map, because executors are separate processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace xpud::inject {

inline constexpr char kPlanVariable[] = "XPUD_INJECT_PLAN";  // names the file

struct Plan {
  // Written by the test.
  std::atomic<uint64_t> fails;   // the number of the call that fails, from 1; 0: none
  std::atomic<uint32_t> result;  // a ze_result_t
  std::atomic<uint32_t> sticks;  // 1: all later calls of that process fail too
  std::atomic<uint32_t> memory;  // 1: only calls that concern memory are counted
  char only[60];                 // only calls of this name are counted; empty: all; set while `fails` is 0
  // Written by the driver.
  std::atomic<uint64_t> calls;
  std::atomic<uint32_t> failed_in;  // pid of the process in which it failed; 0: not yet
  char failed_call[60];
};

// Creates the file, and maps it for as long as this process lives.
Plan& CreatePlan(const std::string& path);

}  // namespace xpud::inject
