// A device for the tests of this folder: a KernelStore that can run launches. Used by one thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/library/host_modules.h"
#include "kernels/library/planners.h"
#include "kernels/library/testing/host_tensor.h"
#include "proto/base/check.h"

namespace xpud::kernels::testing {

class Device : public KernelStore {
 public:
  // Returns `tensor` as the device's kernels see it. Placing it twice gives the same place. Valid until Run
  // returns.
  virtual Operand Place(HostTensor& tensor) = 0;
  // Memory for a plan's workspace, valid until Run returns.
  virtual absl::StatusOr<void*> Workspace(size_t bytes) = 0;
  // Runs the launches. Afterwards the placed tensors hold the results.
  virtual void Run(const LaunchList& launches) = 0;

  // Queues `work` until Plan runs it.
  void InBackground(std::function<void()> work) override { background_.push_back(std::move(work)); }
  std::shared_ptr<const Code> Assemble(std::string_view ptx) override {
    return std::make_shared<const Code>(ModuleImage{ModuleImage::Format::kPtx, std::string(ptx)});
  }
  // Plans until the call is ready.
  absl::Status Plan(Planner& planner, const OpCall& call, LaunchList& launches) {
    for (;;) {
      launches.Clear();
      const auto readiness = planner.Plan(call, [&](size_t bytes) { return Workspace(bytes); }, launches);
      if (!readiness.ok() || *readiness == Readiness::kReady) return readiness.status();
      XPUD_CHECK(!background_.empty());
      for (; !background_.empty(); background_.pop_front()) background_.front()();
    }
  }

 private:
  std::deque<std::function<void()>> background_;
};

// Returns the kernel that a HOST launch names.
inline const xpud_host_kernel_t& HostKernelOf(const Kernel& kernel) {
  const xpud_host_module_t* const module = FindHostModule(kernel.module->bytes);
  XPUD_CHECK(module != nullptr);
  for (uint32_t i = 0; i < module->num_kernels; ++i)
    if (kernel.entry == module->kernels[i].name) return module->kernels[i];
  XPUD_CHECK(false && "no such entry");
}

}  // namespace xpud::kernels::testing
