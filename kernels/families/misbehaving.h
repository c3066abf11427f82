// Kernels that do what kernels must not, for tests of the daemon: xpud::test_fault stores to address 0,
// xpud::test_endless never ends. Planned only with KernelLibrary::Options::test_kernels. Engine thread only.
#pragma once

#include <string>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

// Argument: an address, which is stored to, or read for ever. Groups do not matter.
class MisbehavingSkeleton : public Skeleton {
 public:
  static KernelKey KeyOf(bool endless);

  std::string NameOf(const KernelKey& key) const override;
  std::string Describe(const KernelKey& key) const override { return NameOf(key); }
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

class MisbehavingPlanner : public Planner {
 public:
  explicit MisbehavingPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kTest; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const MisbehavingSkeleton skeleton_;
};

}  // namespace xpud::kernels
