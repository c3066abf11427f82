// The seam between KernelLibrary and the parts that serve op families: compiled skeletons, and vendor
// libraries.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/kernel_library.h"

namespace xpud::kernels {

// Owns modules and kernels and hands out dense kernel indices. Thread-safe; what it returns lives as long as
// it does.
class KernelStore {
 public:
  virtual ~KernelStore() = default;
  // Keeps the image.
  virtual const Kernel* Add(ModuleImage image, std::string entry) = 0;
  // A further entry point of a kernel's module.
  virtual const Kernel* AddEntry(const Kernel& sibling, std::string entry) = 0;
  // Runs `work` on the compiler's thread, and then KernelLibrary::Options::on_ready. Not called from there.
  virtual void InBackground(std::function<void()> work) = 0;
  // PTX text as the device takes it: from disk, assembled now, or as it is where nothing assembles. In the
  // background only.
  virtual absl::StatusOr<ModuleImage> Assemble(std::string_view ptx) = 0;
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

// kernels/library/onednn: kMatmul on the host, packed weights cached. `workers` and `elsewhere` as in
// KernelLibrary::Options.
std::unique_ptr<Planner> CreateOnednnMatmul(KernelStore& store, int workers, bool elsewhere = false);
// kernels/library/attention: kAttention on the host, scores never materialised.
std::unique_ptr<Planner> CreateHostAttention(KernelStore& store, int workers);
// kernels/library/cublaslt: kMatmul on NVIDIA GPUs, by cuBLASLt where the process that has the device finds
// it, else by our own kernels. `ask` as in KernelLibrary::Options.
std::unique_ptr<Planner> CreateCublasltMatmul(KernelStore& store, KernelLibrary::Ask ask = nullptr);
// kernels/library/attention: kAttention on NVIDIA GPUs, scores never materialised. `processor` and
// `workers` (multiprocessors) as in KernelLibrary::Options.
std::unique_ptr<Planner> CreateGpuAttention(KernelStore& store, const std::string& processor, int workers);

}  // namespace xpud::kernels
