// The planner of kMatmul on NVIDIA GPUs: cuBLASLt where that is installed and takes the problem, our own
// kernels (gpu/product.cu) elsewhere and around it. The library's thread only.
#pragma once

#include <optional>

#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/library/cublaslt/cublaslt_plan.h"
#include "kernels/library/cublaslt/workspace_table.h"
#include "kernels/library/gpu/ptx_module.h"

namespace xpud::kernels::cublaslt {

class CublasltMatmul : public Planner {
 public:
  // Who says what cuBLASLt does.
  enum class Library {
    kNone,  // every product is our own
    kHere,  // launches run in this process, and it is installed
    kAsked,
  };
  // `ask`: for kAsked, see KernelLibrary::Options.
  CublasltMatmul(KernelStore& store, Library library, AskDevice ask = nullptr);

  bool Serves(ops::Family family) const override { return family == ops::Family::kMatmul; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // How the library takes part in a call.
  struct Way {
    matmul::MatmulCall call;  // with the strides of factors that are copied first, whose addresses are null
    Problem problem;
    bool copies_a = false, copies_b = false;
    uint64_t workspace_bytes = 0;
  };
  static Way WayOf(const matmul::MatmulCall& call);
  WorkspaceTable::Found WorkspaceFor(const Problem& problem);
  absl::StatusOr<Readiness> LaunchOwn(const matmul::MatmulCall& call, LaunchList& launches);
  absl::StatusOr<Readiness> LaunchLibrary(const matmul::MatmulCall& call, Way& way, Workspace workspace,
                                          LaunchList& launches);

  PtxModule own_;
  const Library library_;
  const Kernel* product_ = nullptr;
  std::optional<WorkspaceTable> workspaces_;  // for kAsked
};

}  // namespace xpud::kernels::cublaslt
