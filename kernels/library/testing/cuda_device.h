// An NVIDIA GPU for the tests and benchmarks of this folder: launches run on a stream of its own, HOST
// kernels as proto/base/ze_ext.h says of CUDA devices. Call from one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/library/testing/device.h"

namespace xpud::kernels::testing {

class CudaDevice : public Device {
 public:
  // With `misalign`, every third tensor is placed at an address aligned no better than its elements.
  // Unavailable: there is no driver or no GPU; the message says which.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(bool misalign = true);
  ~CudaDevice() override;

  // As "sm_90".
  const std::string& processor() const { return processor_; }
  const Kernel* Add(ModuleImage image, std::string entry) override;
  const Kernel* AddEntry(const Kernel& sibling, std::string entry) override;
  Operand Place(HostTensor& tensor) override;
  absl::StatusOr<void*> Workspace(size_t bytes) override;
  void Run(const LaunchList& launches) override;
  // As KernelLibrary::Options::ask.
  absl::StatusOr<uint64_t> Ask(const Launch& launch);

  // For benchmarks: enqueues without waiting; memory stays placed until Run.
  void Enqueue(const LaunchList& launches);
  void Wait();
  // Microseconds on the GPU of what `enqueue` enqueues, replayed as a graph: the host's time does not count.
  template <typename Function>
  double Time(Function enqueue) {
    BeginCapture();
    enqueue();
    return TimeCapture();
  }

 private:
  struct Api;
  struct Allocation {
    uint64_t address = 0;
    size_t bytes = 0;
  };
  CudaDevice(const Api& api, void* context, void* stream, bool misalign);
  Allocation Allocate(size_t bytes);
  void CheckGuard(const Allocation& allocation);
  void* FunctionOf(const Kernel& kernel);
  void BeginCapture();
  double TimeCapture();

  const Api& api_;
  void* const context_;
  void* const stream_;
  const bool misalign_;
  std::string processor_;
  void* events_[2] = {};
  std::vector<std::unique_ptr<ModuleImage>> images_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::map<const ModuleImage*, void*> modules_;
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
