#include "kernels/testing/device.h"

#include "absl/strings/str_cat.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/TargetSelect.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels {

struct TestDevice::Loaded {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  xpud_host_kernel_fn_t run = nullptr;
  const uint32_t* arg_sizes = nullptr;
};

TestDevice::TestDevice() : scratch_(new std::byte[XPUD_HOST_SCRATCH_BYTES + 64]) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
}
TestDevice::~TestDevice() = default;

TestDevice::Loaded& TestDevice::Load(const Kernel& kernel) {
  std::unique_ptr<Loaded>& slot = loaded_[&kernel];
  if (slot != nullptr) return *slot;
  slot = std::make_unique<Loaded>();
  if (kernel.module->format == ModuleImage::Format::kHost) {
    const auto* const table = static_cast<const xpud_host_module_t*>(kernel.module->host);
    for (uint32_t i = 0; i < table->num_kernels; ++i) {
      if (kernel.entry != table->kernels[i].name) continue;
      slot->run = table->kernels[i].run;
      slot->arg_sizes = table->kernels[i].arg_sizes;
    }
    XPUD_CHECK(slot->run != nullptr);
    return *slot;
  }
  slot->jit = llvm::cantFail(llvm::orc::LLJITBuilder().create());
  llvm::cantFail(
      slot->jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(kernel.module->bytes, kernel.entry)));
  slot->run = llvm::cantFail(slot->jit->lookup(kernel.entry)).toPtr<xpud_host_kernel_fn_t>();
  slot->arg_sizes = llvm::cantFail(slot->jit->lookup(kernel.entry + ".arg_sizes")).toPtr<const uint32_t*>();
  return *slot;
}

absl::Status TestDevice::Plan(KernelLibrary& library, const OpCall& call, LaunchList& launches) {
  workspaces_.clear();
  const auto workspace = [&](size_t bytes) -> absl::StatusOr<void*> {
    workspaces_.emplace_back(new std::byte[bytes + 64]);
    std::memset(workspaces_.back().get(), 0xA5, bytes + 64);
    const auto address = reinterpret_cast<uintptr_t>(workspaces_.back().get());
    return reinterpret_cast<void*>((address + 63) / 64 * 64);
  };
  for (;;) {
    ASSIGN_OR_RETURN(const Readiness readiness, library.Plan(call, workspace, launches));
    if (readiness == Readiness::kReady) return absl::OkStatus();
    library.WaitForCompiles();
  }
}

void TestDevice::Execute(const LaunchList& launches) {
  void* const scratch = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch_.get()) + 63) / 64 * 64);
  groups_ = 0;
  for (size_t l = 0; l < launches.size(); ++l) {
    const Launch& launch = launches[l];
    Loaded& kernel = Load(launch.kernel());
    const auto& groups = launch.groups();
    for (uint32_t z = 0; z < groups[2]; ++z) {
      for (uint32_t y = 0; y < groups[1]; ++y) {
        for (uint32_t x = 0; x < groups[0]; ++x) {
          const uint32_t group[3] = {x, y, z};
          kernel.run(launch.arguments(), group, scratch);
          ++groups_;
        }
      }
    }
  }
}

absl::Status TestDevice::Run(KernelLibrary& library, const OpCall& call) {
  LaunchList launches;
  RETURN_IF_ERROR(Plan(library, call, launches));
  Execute(launches);
  return absl::OkStatus();
}

}  // namespace xpud::kernels
