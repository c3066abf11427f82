// The planner of kMatmul on the host. The library's thread only.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/library/onednn/matmul_kernels.h"
#include "kernels/library/onednn/matmul_plan.h"
#include "kernels/library/onednn/packed_weights.h"

namespace xpud::kernels::onednn {

struct MatmulOptions {
  int workers = 1;
  bool elsewhere = false;  // as in KernelLibrary::Options: nothing is packed, problems travel by value
  // Limit of packed weights. They double the memory of weights that recur; the default, 1 GiB or an eighth of
  // the machine's memory if that is less, holds the whole of models up to about 250 million f32 weights.
  size_t packed_bytes = DefaultPackedBytes();

  static size_t DefaultPackedBytes();
};

class OnednnMatmul : public Planner {
 public:
  OnednnMatmul(KernelStore& store, const MatmulOptions& options);

  bool Serves(ops::Family family) const override { return family == ops::Family::kMatmul; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

  const PackedWeightCache& packed_weights() const { return packed_; }

 private:
  PackedWeightCache::Found FindPacked(const MatmulCall& call);
  absl::Status MakeMultipliable(MatmulCall& call, bool packed, Workspace workspace, LaunchList& launches);
  const MatmulPlan* PlanFor(const MatmulProblem& problem);  // nullptr: no room for another
  uint32_t TilesPerGroup(const MatmulPlan& plan) const;

  const int workers_;
  const bool elsewhere_;
  const MatmulKernels kernels_;
  PackedWeightCache packed_;
  // Launches in this process point at plans, so plans live as long as this. When there are kMaxPlans,
  // further problems travel by value.
  absl::flat_hash_map<MatmulProblem, std::unique_ptr<MatmulPlan>> plans_;
};

}  // namespace xpud::kernels::onednn
