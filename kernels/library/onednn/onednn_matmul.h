// The planner of kMatmul on the host. The library's thread only.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/library/onednn/matmul_kernels.h"
#include "kernels/library/onednn/matmul_plan.h"
#include "kernels/library/onednn/packed_matrix.h"

namespace xpud::kernels::onednn {

struct MatmulOptions {
  int workers = 1;
  bool elsewhere = false;  // as in KernelLibrary::Options: nothing is packed, and problems are sent by value
  size_t packed_bytes = DefaultPackedBytes();  // holds whole models of up to about 250 million f32 weights
};

class OnednnMatmul : public Planner {
 public:
  OnednnMatmul(KernelStore& store, const MatmulOptions& options);

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

  const PackedWeightCache& packed_weights() const { return packed_; }

 private:
  struct Packed {
    PackedMatrix* weights = nullptr;  // nullptr: multiply the unpacked weights
    bool pack_first = false;
  };
  Packed FindPacked(const MatmulCall& call);
  absl::Status MakeMultipliable(MatmulCall& call, bool packed, Workspace workspace, LaunchList& launches);
  const MatmulPlan* PlanFor(const MatmulProblem& problem);  // returns nullptr if there is no room for another
  uint32_t TilesPerGroup(const MatmulPlan& plan) const;

  const int workers_;
  const bool elsewhere_;
  const MatmulKernels kernels_;
  PackedWeightCache packed_;
  // Launches in this process point to plans, so plans live as long as this object. Beyond kMaxPlans, problems
  // are sent by value.
  absl::flat_hash_map<MatmulProblem, std::unique_ptr<MatmulPlan>> plans_;
};

}  // namespace xpud::kernels::onednn
