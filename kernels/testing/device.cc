#include "kernels/testing/device.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/library/host_modules.h"
#include "kernels/testing/gpu_memory.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/TargetSelect.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

struct TestDevice::Loaded {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  xpud_host_kernel_fn_t run = nullptr;
  const uint32_t* arg_sizes = nullptr;
};

TestDevice::TestDevice() : scratch_(new std::byte[XPUD_HOST_SCRATCH_BYTES + 64]) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  const char* const target = std::getenv("XPUD_TEST_TARGET");
  nvptx_ = target != nullptr && std::string_view(target) == "nvptx";
  if (!nvptx_) return;
  const absl::StatusOr<CudaDevice*> device = CudaDevice::Get();
  absent_ = device.status();
  if (device.ok()) gpu_ = *device;
}

TestDevice::~TestDevice() { ReleaseWorkspaces(); }

static bool IsOff(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "0";
}

KernelLibrary::Options TestDevice::options() {
  KernelLibrary::Options options;
  if (nvptx_) options.target = Target::kNvptx;
  options.has_doubles = !IsOff("XPUD_TEST_DOUBLES");
  if (const char* const cache = std::getenv("XPUD_TEST_CACHE")) options.cache_directory = cache;
  if (gpu_ == nullptr) return options;
  options.processor = gpu_->processor();
  if (!IsOff("XPUD_TEST_LIBRARIES"))
    options.run_host_kernel = [this](const Launch& launch) { return RunHostKernel(launch); };
  return options;
}

void TestDevice::ReleaseWorkspaces() {
  workspaces_.clear();
  for (void* const memory : gpu_workspaces_) gpu_->Free(memory);
  gpu_workspaces_.clear();
}

absl::StatusOr<void*> TestDevice::Workspace(size_t bytes) {
  constexpr unsigned char kUnwritten = 0xA5;
  if (gpu_ != nullptr) {
    gpu_workspaces_.push_back(gpu_->Allocate(bytes));
    gpu_->Fill(gpu_workspaces_.back(), kUnwritten, bytes);
    return gpu_workspaces_.back();
  }
  workspaces_.emplace_back(new std::byte[bytes + 64]);
  std::memset(workspaces_.back().get(), kUnwritten, bytes + 64);
  const auto address = reinterpret_cast<uintptr_t>(workspaces_.back().get());
  return reinterpret_cast<void*>((address + 63) / 64 * 64);
}

TestDevice::Loaded& TestDevice::Load(const Kernel& kernel) {
  std::unique_ptr<Loaded>& slot = loaded_[&kernel];
  if (slot != nullptr) return *slot;
  slot = std::make_unique<Loaded>();
  if (kernel.module->format == ModuleImage::Format::kHost) {
    const xpud_host_module_t* const table = FindHostModule(kernel.module->bytes);
    XPUD_CHECK(table != nullptr);
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
  ReleaseWorkspaces();
  const auto workspace = [&](size_t bytes) { return Workspace(bytes); };
  for (;;) {
    ASSIGN_OR_RETURN(const Readiness readiness, library.Plan(call, workspace, launches));
    if (readiness == Readiness::kReady) return absl::OkStatus();
    library.WaitForCompiles();
  }
}

void TestDevice::Execute(const LaunchList& launches) {
  if (gpu_ == nullptr) return ExecuteHere(launches);
  groups_ = 0;
  for (size_t l = 0; l < launches.size(); ++l) {
    const auto& groups = launches[l].groups();
    groups_ += uint64_t{groups[0]} * groups[1] * groups[2];
  }
  for (size_t l = 0; l < launches.size(); ++l) {
    const Launch& launch = launches[l];
    if (launch.kernel().module->format == ModuleImage::Format::kHost) {
      XPUD_CHECK(RunLibrary(launch.kernel(), launch.arguments()) == ZE_RESULT_SUCCESS);
    } else {
      gpu_->Launch(gpu_->Load(launch.kernel()), launch);
    }
  }
  gpu_->Synchronize();
}

ze_result_t TestDevice::RunLibrary(const Kernel& kernel, const void* const* arguments) {
  xpud_native_list_t list = {gpu_->stream(), gpu_->context(), 0, ZE_RESULT_SUCCESS, /*recording=*/0};
  const uint32_t group[3] = {};
  Load(kernel).run(arguments, group, &list);
  return list.result;
}

absl::StatusOr<uint64_t> TestDevice::RunHostKernel(const Launch& launch) {
  std::vector<const void*> arguments(launch.arguments(), launch.arguments() + launch.argument_count());
  uint64_t answer = 0;
  uint64_t* const address = &answer;
  arguments.push_back(&address);
  gpu_->MakeCurrent();  // a thread of the library calls this
  const ze_result_t result = RunLibrary(launch.kernel(), arguments.data());
  if (result != ZE_RESULT_SUCCESS) return absl::InternalError(absl::StrCat("0x", absl::Hex(result)));
  return answer;
}

void TestDevice::ExecuteHere(const LaunchList& launches) {
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
  if (gpu_ != nullptr) return RunOnGpu(library, call);
  LaunchList launches;
  RETURN_IF_ERROR(Plan(library, call, launches));
  Execute(launches);
  return absl::OkStatus();
}

absl::Status TestDevice::RunOnGpu(KernelLibrary& library, const OpCall& call) {
  GpuMemory memory(*gpu_, call);
  LaunchList launches;
  RETURN_IF_ERROR(Plan(library, memory.call(), launches));
  Execute(launches);
  memory.CopyBack();
  return absl::OkStatus();
}

}  // namespace xpud::kernels
