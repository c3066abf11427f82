// The planner of kMatmul on NVIDIA GPUs. Uses cuBLASLt if it is installed and supports the problem, and our
// own kernels (gpu/product.cu) otherwise and around it. The library's thread only.
#pragma once

#include <optional>

#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/library/cublaslt/cublaslt_plan.h"
#include "kernels/library/gpu/ptx_module.h"
#include "kernels/library/matmul/matmul_cut.h"
#include "kernels/library/workspace_table.h"

namespace xpud::kernels::cublaslt {

class CublasltMatmul : public Planner {
 public:
  // Where cuBLASLt runs.
  enum class Library {
    kNone,  // not at all: our own kernels compute all products
    kHere,  // in this process, where it is installed
    kAsked,
  };
  // `run` is for kAsked: see KernelLibrary::Options. `rates`: of the device.
  CublasltMatmul(KernelStore& store, Library library, HostKernelRunner run = nullptr,
                 const matmul::MatmulRates& rates = {});

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  using Workspaces = WorkspaceTable<Problem>;
  // How the library computes a part of a call.
  struct Way {
    matmul::MatmulCall call;  // with the strides of factors that are copied first; their addresses are null
    Problem problem;
    bool copies_a = false, copies_b = false;
    uint64_t workspace_bytes = 0;
  };
  static Way WayOf(const matmul::MatmulCall& call);
  Workspaces::Found WorkspaceFor(const Problem& problem);
  absl::StatusOr<Readiness> LaunchOwn(const matmul::MatmulCall& call, LaunchList& launches);
  // `memory`: for way.workspace_bytes; null: taken of `workspace`.
  absl::StatusOr<Readiness> LaunchLibrary(const matmul::MatmulCall& call, Way& way, void* memory,
                                          Workspace workspace, LaunchList& launches);
  // A product that is long, in pieces. Returns std::nullopt if it cannot be cut.
  absl::StatusOr<std::optional<Readiness>> LaunchPieces(const matmul::MatmulCall& call, Workspace workspace,
                                                        LaunchList& launches);

  PtxModule own_;
  const Library library_;
  const matmul::MatmulRates rates_;
  const Kernel* product_ = nullptr;
  std::optional<Workspaces> workspaces_;  // for kAsked
};

}  // namespace xpud::kernels::cublaslt
