// The planners of vendors' libraries and of handwritten kernels. The library's thread only.
#pragma once

#include <memory>
#include <string>

#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/library/matmul/matmul_cut.h"

namespace xpud::kernels {

// kernels/library/onednn: kMatmul on the host, with a cache of packed weights. `workers` and `elsewhere` as
// in KernelLibrary::Options.
std::unique_ptr<Planner> CreateOnednnMatmul(KernelStore& store, int workers, bool elsewhere = false);
// kernels/library/onednn: convolutions and their gradients on the host, with a cache of packed weights.
// `maps` plans copies, `own` what oneDNN has no fast implementation for; both outlive the planner.
std::unique_ptr<Planner> CreateOnednnConvolution(KernelStore& store, Planner& maps, Planner& own, int workers,
                                                 bool elsewhere = false);
// kernels/library/cudnn: convolutions and their gradients on NVIDIA GPUs, by cuDNN if the process that owns
// the device finds it. `maps` and `own` as above; `run` as in KernelLibrary::Options, not null.
std::unique_ptr<Planner> CreateCudnnConvolution(KernelStore& store, Planner& maps, Planner& own,
                                                HostKernelRunner run);
// kernels/library/attention: kAttention, kTrainingAttention and kAttentionBackward on the host, without
// storing scores.
std::unique_ptr<Planner> CreateHostAttention(KernelStore& store, int workers);
// kernels/library/cublaslt: kMatmul on NVIDIA GPUs, by cuBLASLt if the process that owns the device finds it,
// otherwise by our own kernels. `run` as in KernelLibrary::Options. With `rates`, long products are cut.
std::unique_ptr<Planner> CreateCublasltMatmul(KernelStore& store, HostKernelRunner run = nullptr,
                                              const matmul::MatmulRates& rates = {});
// kernels/library/attention: the same families on NVIDIA GPUs. `processor` and `workers` (multiprocessors) as
// in KernelLibrary::Options.
std::unique_ptr<Planner> CreateGpuAttention(KernelStore& store, const std::string& processor, int workers);

}  // namespace xpud::kernels
