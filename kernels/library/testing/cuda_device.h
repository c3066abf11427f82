// An NVIDIA GPU for the tests and benchmarks of this folder. Runs HOST kernels as proto/base/ze_ext.h defines
// for CUDA devices. Used by one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/library/testing/device.h"
#include "kernels/testing/cuda_device.h"

namespace xpud::kernels::testing {

class CudaDevice : public Device {
 public:
  // If `misalign`, every third tensor is placed at an address that is aligned only for its elements. Returns
  // NotFound, with the reason, if there is no driver or no GPU.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(bool misalign = true);
  ~CudaDevice() override;

  // For example "sm_90".
  const std::string& processor() const { return gpu_.processor(); }
  int multiprocessors() const { return gpu_.multiprocessors(); }
  const Kernel* Add(std::shared_ptr<const ModuleImage> image, std::string entry) override;
  const Kernel* AddEntry(const Kernel& sibling, std::string entry) override;
  Operand Place(HostTensor& tensor) override;
  absl::StatusOr<void*> Workspace(size_t bytes) override;
  void Run(const LaunchList& launches) override;
  // The implementation of KernelLibrary::Options::run_host_kernel.
  absl::StatusOr<uint64_t> RunHostKernel(const Launch& launch);

  // For benchmarks: enqueues without waiting. Tensors stay placed until Run.
  void Enqueue(const LaunchList& launches);
  void Wait() { gpu_.Synchronize(); }
  // Returns the microseconds on the GPU of the work that `enqueue` enqueues: see kernels::CudaDevice.
  double Time(absl::FunctionRef<void()> enqueue) { return 1e3 * static_cast<double>(gpu_.Time(enqueue)); }

 private:
  struct Allocation {
    std::byte* address = nullptr;
    size_t bytes = 0;
  };
  CudaDevice(kernels::CudaDevice& gpu, bool misalign) : gpu_(gpu), misalign_(misalign) {}
  Allocation Allocate(size_t bytes);
  void CheckGuard(const Allocation& allocation);
  void* FunctionOf(const Kernel& kernel);
  xpud_native_list_t List(void* stream) const;

  kernels::CudaDevice& gpu_;
  const bool misalign_;
  std::vector<std::shared_ptr<const ModuleImage>> images_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<void*> functions_;  // by Kernel::index
  struct Placed {
    HostTensor* tensor;
    Allocation allocation;
    size_t offset;
  };
  std::map<const void*, Placed> placed_;  // by the tensor's bytes
  std::vector<Allocation> workspaces_;
  size_t count_ = 0;
};

}  // namespace xpud::kernels::testing
