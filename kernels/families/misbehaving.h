// Kernels that misbehave, for tests of the daemon: xpud::test_fault stores to address 0, xpud::test_endless
// never ends. Planned only with KernelLibrary::Options::test_kernels. The library's thread only.
#pragma once

#include <string>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

struct MisbehavingKey {
  bool endless = false;

  void Visit(auto& visit) { visit(endless, 1); }
};

template <typename Side>
struct MisbehavingArguments {
  typename Side::Pointer address;  // is stored to, or read forever

  void Visit(const MisbehavingKey&, auto& visit) { visit(address); }
};

// All groups do the same.
class MisbehavingSkeleton : public SkeletonOf<MisbehavingKey, ops::Family::kTest, MisbehavingArguments> {
 public:
  std::string Name(const MisbehavingKey& key) const override {
    return key.endless ? "test_endless" : "test_fault";
  }
  absl::Status EmitBody(const MisbehavingKey& key, const MisbehavingArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

class MisbehavingPlanner : public Planner {
 public:
  explicit MisbehavingPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const MisbehavingSkeleton skeleton_;
};

}  // namespace xpud::kernels
