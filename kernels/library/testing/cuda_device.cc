#include "kernels/library/testing/cuda_device.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::testing {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0x5a;

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(bool misalign) {
  ASSIGN_OR_RETURN(kernels::CudaDevice* const gpu, kernels::CudaDevice::Get());
  return std::unique_ptr<CudaDevice>(new CudaDevice(*gpu, misalign));
}

CudaDevice::~CudaDevice() {
  for (const auto& [key, placed] : placed_) gpu_.Free(placed.allocation.address);
  for (const Allocation& workspace : workspaces_) gpu_.Free(workspace.address);
}

const Kernel* CudaDevice::Add(std::shared_ptr<const ModuleImage> image, std::string entry) {
  images_.push_back(std::move(image));
  kernels_.push_back(std::make_unique<Kernel>(
      Kernel{static_cast<uint32_t>(kernels_.size()), images_.back().get(), std::move(entry)}));
  return kernels_.back().get();
}

const Kernel* CudaDevice::AddEntry(const Kernel& sibling, std::string entry) {
  kernels_.push_back(std::make_unique<Kernel>(
      Kernel{static_cast<uint32_t>(kernels_.size()), sibling.module, std::move(entry)}));
  return kernels_.back().get();
}

CudaDevice::Allocation CudaDevice::Allocate(size_t bytes) {
  std::byte* const address = static_cast<std::byte*>(gpu_.Allocate(bytes + kGuardBytes));
  gpu_.Fill(address, kGuard, bytes + kGuardBytes);
  return {address, bytes};
}

// Checks that nothing was written behind an allocation.
void CudaDevice::CheckGuard(const Allocation& allocation) {
  unsigned char guard[kGuardBytes];
  gpu_.CopyOut(guard, allocation.address + allocation.bytes, kGuardBytes);
  for (const unsigned char byte : guard) XPUD_CHECK(byte == kGuard);
  gpu_.Free(allocation.address);
}

Operand CudaDevice::Place(HostTensor& tensor) {
  Operand operand = tensor.operand();
  if (!operand.present) return operand;
  const auto found = placed_.find(operand.data);
  if (found == placed_.end()) {
    const size_t offset = misalign_ && ++count_ % 3 == 0 ? ops::SizeOf(operand.dtype) : 0;
    const Allocation allocation = Allocate(tensor.bytes().size() + offset);
    gpu_.CopyIn(allocation.address + offset, tensor.bytes().data(), tensor.bytes().size());
    placed_[operand.data] = {&tensor, allocation, offset};
  }
  const Placed& placed = placed_[operand.data];
  operand.data = placed.allocation.address + placed.offset;
  return operand;
}

absl::StatusOr<void*> CudaDevice::Workspace(size_t bytes) {
  workspaces_.push_back(Allocate(bytes));
  return static_cast<void*>(workspaces_.back().address);
}

void* CudaDevice::FunctionOf(const Kernel& kernel) {
  functions_.resize(kernels_.size());
  void*& function = functions_[kernel.index];
  if (function == nullptr) function = gpu_.Load(kernel);
  return function;
}

xpud_native_list_t CudaDevice::List(void* stream) const {
  return {stream, gpu_.context(), 0, ZE_RESULT_SUCCESS, /*recording=*/0};
}

void CudaDevice::Enqueue(const LaunchList& launches) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch& launch = launches[i];
    if (launch.kernel().module->format != ModuleImage::Format::kHost) {
      gpu_.Launch(FunctionOf(launch.kernel()), launch);
      continue;
    }
    const xpud_host_kernel_t& kernel = HostKernelOf(launch.kernel());
    XPUD_CHECK(kernel.num_args == launch.argument_count());
    xpud_native_list_t list = List(gpu_.stream());
    const uint32_t group[3] = {};
    kernel.run(launch.arguments(), group, &list);
    XPUD_CHECK(list.result == ZE_RESULT_SUCCESS);
  }
}

absl::StatusOr<uint64_t> CudaDevice::RunHostKernel(const Launch& launch) {
  const xpud_host_kernel_t& kernel = HostKernelOf(launch.kernel());
  XPUD_CHECK(kernel.num_args == launch.argument_count() + 1);
  // Uses only bytes and offsets, as another process would.
  alignas(64) std::byte bytes[Launch::kMaxArgumentBytes];
  std::copy(launch.argument_bytes().begin(), launch.argument_bytes().end(), bytes);
  std::vector<const void*> arguments;
  for (const uint16_t offset : launch.argument_offsets()) arguments.push_back(bytes + offset);
  uint64_t answer = 0;
  uint64_t* const address = &answer;
  arguments.push_back(&address);
  xpud_native_list_t list = List(nullptr);
  const uint32_t group[3] = {};
  kernel.run(arguments.data(), group, &list);
  if (list.result != ZE_RESULT_SUCCESS)
    return absl::InternalError(absl::StrCat("0x", absl::Hex(list.result)));
  return answer;
}

void CudaDevice::Run(const LaunchList& launches) {
  Enqueue(launches);
  Wait();
  for (auto& [key, placed] : placed_) {
    gpu_.CopyOut(placed.tensor->bytes().data(), placed.allocation.address + placed.offset,
                 placed.tensor->bytes().size());
    CheckGuard(placed.allocation);
  }
  for (const Allocation& workspace : workspaces_) CheckGuard(workspace);
  placed_.clear();
  workspaces_.clear();
}

}  // namespace xpud::kernels::testing
