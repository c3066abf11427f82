// Runs planned launches in a test, on the CPU (loads host objects with LLVM's JIT linker, checks argument
// sizes, and calls every group) or, with XPUD_TEST_TARGET=nvptx in the environment, on an NVIDIA GPU, to
// which it copies the operands and from which it copies them back. One thread. Aborts on anything a driver
// would refuse.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kernels/dispatch/kernel_library.h"
#include "kernels/testing/cuda_device.h"

namespace xpud::kernels {

class TestDevice {
 public:
  TestDevice();
  ~TestDevice();

  // What a library for this device is made with.
  KernelLibrary::Options options() const;
  // Why nothing can run here, if so.
  const absl::Status& absent() const { return absent_; }

  // Plans `call` (waiting for compiles) and runs it. Operands are memory of TestTensors.
  absl::Status Run(KernelLibrary& library, const OpCall& call);
  // Runs launches again (benchmarks).
  void Execute(const LaunchList& launches);
  // On a GPU, the operands are in device memory.
  absl::Status Plan(KernelLibrary& library, const OpCall& call, LaunchList& launches);
  // How many groups the last Run had, over all launches.
  uint64_t groups() const { return groups_; }

 private:
  struct Loaded;
  Loaded& Load(const Kernel& kernel);
  absl::StatusOr<void*> Workspace(size_t bytes);
  void ReleaseWorkspaces();
  void ExecuteHere(const LaunchList& launches);
  absl::Status RunOnGpu(KernelLibrary& library, const OpCall& call);

  absl::Status absent_;
  CudaDevice* gpu_ = nullptr;  // nullptr: the CPU
  bool nvptx_ = false;
  std::map<const Kernel*, std::unique_ptr<Loaded>> loaded_;
  std::vector<std::unique_ptr<std::byte[]>> workspaces_;
  std::vector<void*> gpu_workspaces_;
  std::unique_ptr<std::byte[]> scratch_;
  uint64_t groups_ = 0;
};

}  // namespace xpud::kernels
