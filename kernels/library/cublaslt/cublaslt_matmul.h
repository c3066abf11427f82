// The planner of kMatmul on NVIDIA GPUs: cuBLASLt where that is installed and takes the problem, our own
// kernels (gpu/product.cu) elsewhere and around it. Engine thread only.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "kernels/library/cublaslt/cublaslt_plan.h"
#include "kernels/library/gpu/product_arguments.h"
#include "kernels/planner.h"

namespace xpud::kernels::cublaslt {

class CublasltMatmul : public Planner {
 public:
  // Without `api` every product is our own.
  CublasltMatmul(KernelStore& store, const Api* api);

  bool Serves(ops::Family family) const override { return family == ops::Family::kMatmul; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, KernelLibrary::Workspace workspace,
                                 LaunchList& launches) override;

 private:
  struct OfType {
    const Kernel* product = nullptr;
    const Kernel* finish = nullptr;
  };

  void LaunchOwn(const matmul::MatmulCall& call, LaunchList& launches) const;
  void LaunchFinish(const matmul::MatmulCall& call, const void* sum, LaunchList& launches) const;
  absl::Status MakeMatrices(matmul::MatmulCall& call, KernelLibrary::Workspace workspace,
                            LaunchList& launches) const;
  absl::Status LaunchLibrary(const Problem& problem, const matmul::MatmulOperands& operands,
                             KernelLibrary::Workspace workspace, LaunchList& launches);
  cublaslt::Plan* PlanFor(const Problem& problem);  // nullptr: no room for another

  std::unique_ptr<Device> device_;  // nullptr without cuBLASLt
  OfType types_[4];                 // by TypeIndex
  const Kernel* copies_[3];         // of 2, 4 and 8 bytes
  const Kernel* library_ = nullptr;
  const Kernel* library_unplanned_ = nullptr;
  // Launches point at plans, so plans live as long as this. When there are kMostPlans, further problems
  // travel by value and are planned again for each launch.
  absl::flat_hash_map<Problem, std::unique_ptr<cublaslt::Plan>> plans_;
};

}  // namespace xpud::kernels::cublaslt
