// The planner of kMatmul on the host. The library's thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

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
  // Without weights in the answer, the unpacked ones are multiplied.
  PackedWeightCache::Found FindPacked(const MatmulCall& call);
  absl::Status MakeMultipliable(MatmulCall& call, bool packed, Workspace workspace, LaunchList& launches);
  // Calls `use` with the problem's plan, and whether it lives as long as this object.
  template <typename Use>
  auto WithPlan(const MatmulProblem& problem, Use&& use);
  void LaunchProduct(const MatmulCall& call, PackedMatrix* weights, LaunchList& launches);
  // How a long product is computed if its factors are brought into oneDNN's fastest layout first: in pieces,
  // since the memory for that is limited.
  struct Pieces {
    int64_t batches = 1, rows = 0, columns = 0;
    bool copies_a = false;
    // The problem of the piece that begins at these of the whole.
    MatmulProblem ProblemOf(const MatmulProblem& whole, int64_t batch, int64_t row, int64_t column) const;
  };
  std::optional<Pieces> PiecesOf(const MatmulProblem& problem);
  absl::Status PlanPieces(const MatmulCall& call, const Pieces& pieces, Workspace workspace,
                          LaunchList& launches);
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
