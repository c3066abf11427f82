// The planners of vendors' libraries and of handwritten kernels. Each is used on its library's thread only.
#pragma once

#include <memory>
#include <string>

#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"

namespace xpud::kernels {

// kernels/library/onednn: kMatmul on the host, packed weights cached. `workers` and `elsewhere` as in
// KernelLibrary::Options.
std::unique_ptr<Planner> CreateOnednnMatmul(KernelStore& store, int workers, bool elsewhere = false);
// kernels/library/attention: kAttention on the host, scores never materialised.
std::unique_ptr<Planner> CreateHostAttention(KernelStore& store, int workers);
// kernels/library/cublaslt: kMatmul on NVIDIA GPUs, by cuBLASLt where the process that has the device finds
// it, else by our own kernels. `ask` as in KernelLibrary::Options.
std::unique_ptr<Planner> CreateCublasltMatmul(KernelStore& store, AskDevice ask = nullptr);
// kernels/library/attention: kAttention on NVIDIA GPUs, scores never materialised. `processor` and
// `workers` (multiprocessors) as in KernelLibrary::Options.
std::unique_ptr<Planner> CreateGpuAttention(KernelStore& store, const std::string& processor, int workers);

}  // namespace xpud::kernels
