// What a test of this folder needs of a device: a KernelStore that can run launches. Call from one thread.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/library/testing/host_tensor.h"
#include "kernels/planner.h"

namespace xpud::kernels::testing {

class Device : public KernelStore {
 public:
  // `tensor` as the device's kernels see it; one that is placed twice lies in one place. Valid until Run
  // returns.
  virtual Operand Place(HostTensor& tensor) = 0;
  // Memory for a plan's workspace, valid until Run returns.
  virtual absl::StatusOr<void*> Workspace(size_t bytes) = 0;
  // Runs the launches; then what was placed holds what they wrote.
  virtual void Run(const LaunchList& launches) = 0;
};

}  // namespace xpud::kernels::testing
