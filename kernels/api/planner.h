// The seam between KernelLibrary and what serves op families: compiled skeletons and vendor libraries.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/api/launch.h"
#include "kernels/api/op_call.h"

namespace xpud::kernels {

enum class Readiness {
  kReady,
  kCompiling,  // something is being made in the background; plan the same call again after `on_ready`
};

// Returns device memory that lives until the op is done, or ResourceExhausted. On GPUs at multiples of 256
// bytes.
using Workspace = absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)>;

// Plans the calls of some families. Called on the library's thread only.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual bool Serves(ops::Family family) const = 0;
  // See KernelLibrary::Plan; `launches` is empty on entry.
  virtual absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) = 0;
};

}  // namespace xpud::kernels
