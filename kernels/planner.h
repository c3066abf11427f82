// The seam between KernelLibrary and the parts that serve op families: compiled skeletons, and vendor
// libraries.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/kernel_library.h"

namespace xpud::kernels {

// Owns modules and kernels and hands out dense kernel indices. Thread-safe; what it returns lives as long as
// it does.
class KernelStore {
 public:
  virtual ~KernelStore() = default;
  // A module compiled elsewhere (bytes are kept), or a HOST table with static lifetime.
  virtual const Kernel* Add(ModuleImage image, std::string entry) = 0;
  // A further entry point of a kernel's module.
  virtual const Kernel* AddEntry(const Kernel& sibling, std::string entry) = 0;
};

// Plans the calls of some families. Called on the engine thread only.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual bool Serves(ops::Family family) const = 0;
  // See KernelLibrary::Plan; `launches` is empty on entry.
  virtual absl::StatusOr<Readiness> Plan(const OpCall& call, KernelLibrary::Workspace workspace,
                                         LaunchList& launches) = 0;
};

// kernels/library/onednn: kMatmul on the host, packed weights cached. `workers` as in KernelLibrary::Options.
std::unique_ptr<Planner> CreateOnednnMatmul(KernelStore& store, int workers);
// kernels/library/attention: kAttention on the host, scores never materialised.
std::unique_ptr<Planner> CreateHostAttention(KernelStore& store, int workers);
// kernels/library/cublaslt: kMatmul on NVIDIA GPUs, by cuBLASLt if it is installed, else by our own kernels.
std::unique_ptr<Planner> CreateCublasltMatmul(KernelStore& store);
// kernels/library/attention: kAttention on NVIDIA GPUs, scores never materialised.
std::unique_ptr<Planner> CreateGpuAttention(KernelStore& store);

}  // namespace xpud::kernels
