// The plan of a test, in the file that its processes' injecting drivers map.
#pragma once

#include <level_zero/ze_api.h>

#include <string>

#include "tests/inject/plan.h"

namespace xpud::inject {

struct Failure {
  uint64_t call = 0;  // number of the failing call, from 1; 0: none fails
  ze_result_t result = ZE_RESULT_SUCCESS;
  bool sticks = false;
  bool memory = false;  // only calls that concern memory are counted
};

class PlanFile {
 public:
  PlanFile(const std::string& path, const Failure& failure);
  ~PlanFile();
  PlanFile(const PlanFile&) = delete;
  PlanFile& operator=(const PlanFile&) = delete;

  uint64_t calls() const { return plan_->calls; }
  // The call that failed; "" if none has.
  std::string failed_call() const { return plan_->failed_in == 0 ? "" : plan_->failed_call; }
  void Disarm() { plan_->fails = 0; }
  // Forgets the failure, and plans another one: `failure.call` counts from now on.
  void Arm(const Failure& failure);

 private:
  Plan* const plan_;
};

}  // namespace xpud::inject
