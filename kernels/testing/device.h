// Runs planned launches in a test. On the CPU, it loads host objects with LLVM's JIT linker, checks argument
// sizes, and calls each group. With XPUD_TEST_TARGET=nvptx in the environment, it runs them on an NVIDIA GPU,
// and copies the operands there and back. Used by one thread. Aborts on anything that a driver would refuse.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kernels/dispatch/kernel_library.h"
#include "kernels/testing/cuda_device.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels {

class TestDevice {
 public:
  TestDevice();
  ~TestDevice();

  // Returns the options of a library for this device.
  KernelLibrary::Options options();
  // Returns the reason if nothing can run here.
  const absl::Status& absent() const { return absent_; }

  // Plans `call` (waiting for compilations) and runs it. Operands are memory of TestTensors.
  absl::Status Run(KernelLibrary& library, const OpCall& call);
  // Runs launches again (benchmarks).
  void Execute(const LaunchList& launches);
  // On a GPU, the operands are in device memory.
  absl::Status Plan(KernelLibrary& library, const OpCall& call, LaunchList& launches);
  // Returns the number of groups of the last Run, over all launches.
  uint64_t groups() const { return groups_; }

 private:
  struct Loaded;
  Loaded& Load(const Kernel& kernel);
  absl::StatusOr<void*> Workspace(size_t bytes);
  void ReleaseWorkspaces();
  void ExecuteHere(const LaunchList& launches);
  // Runs a HOST kernel of a GPU, as proto/base/ze_ext.h defines.
  ze_result_t RunLibrary(const Kernel& kernel, const void* const* arguments);
  absl::StatusOr<uint64_t> RunHostKernel(const Launch& launch);
  absl::Status RunOnGpu(KernelLibrary& library, const OpCall& call);

  absl::Status absent_;
  CudaDevice* gpu_ = nullptr;  // nullptr: use the CPU
  bool nvptx_ = false;
  std::map<const Kernel*, std::unique_ptr<Loaded>> loaded_;
  std::vector<std::unique_ptr<std::byte[]>> workspaces_;
  std::vector<void*> gpu_workspaces_;
  std::unique_ptr<std::byte[]> scratch_;
  uint64_t groups_ = 0;
};

}  // namespace xpud::kernels
