// The interface between KernelLibrary and the planners of op families: compiled skeletons and vendor
// libraries.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/api/launch.h"
#include "kernels/api/op_call.h"

namespace xpud::kernels {

enum class Readiness {
  kReady,
  kCompiling,  // work is in progress in the background; plan the same call again after `on_ready`
};

// Returns device memory that lives until the op has completed, or ResourceExhausted. Aligned to 256 bytes on
// GPUs.
using Workspace = absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)>;

// Plans the calls of some families. The library's thread only.
class Planner {
 public:
  virtual ~Planner() = default;
  // See KernelLibrary::Plan; `launches` is empty on entry.
  virtual absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) = 0;
  // See KernelLibrary::Prepare.
  virtual void Prepare(const ops::KernelOfCall&) {}
};

}  // namespace xpud::kernels
