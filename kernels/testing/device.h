// Runs planned launches in a test: loads host objects with LLVM's JIT linker, checks argument sizes, and
// calls every group. One thread. Aborts on anything a driver would refuse.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kernels/kernel_library.h"

namespace xpud::kernels {

class TestDevice {
 public:
  TestDevice();
  ~TestDevice();

  // Plans `call` (waiting for compiles) and runs it.
  absl::Status Run(KernelLibrary& library, const OpCall& call);
  // Runs launches again (benchmarks).
  void Execute(const LaunchList& launches);
  absl::Status Plan(KernelLibrary& library, const OpCall& call, LaunchList& launches);
  // How many groups the last Run had, over all launches.
  uint64_t groups() const { return groups_; }

 private:
  struct Loaded;
  Loaded& Load(const Kernel& kernel);

  std::map<const Kernel*, std::unique_ptr<Loaded>> loaded_;
  std::vector<std::unique_ptr<std::byte[]>> workspaces_;
  std::unique_ptr<std::byte[]> scratch_;
  uint64_t groups_ = 0;
};

}  // namespace xpud::kernels
