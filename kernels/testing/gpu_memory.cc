#include "kernels/testing/gpu_memory.h"

#include <algorithm>

#include "kernels/testing/tensor.h"
#include "proto/base/check.h"

namespace xpud::kernels {
namespace {

// Device addresses equal the host's modulo this, so that their alignment is the same.
constexpr size_t kAlignment = 256;

}  // namespace

GpuMemory::GpuMemory(CudaDevice& device, const OpCall& call)
    : device_(device),
      outputs_(call.outputs.begin(), call.outputs.end()),
      inputs_(call.inputs.begin(), call.inputs.end()),
      call_(call) {
  for (std::vector<Operand>* operands : {&outputs_, &inputs_}) {
    for (const Operand& operand : *operands) AddRegion(operand);
  }
  if (call.error_word != nullptr) {
    auto* const word = reinterpret_cast<std::byte*>(call.error_word);
    regions_.push_back({word, word + sizeof(uint64_t)});
  }
  MergeRegions();
  for (Region& region : regions_) {
    const auto size = static_cast<size_t>(region.end - region.begin);
    region.allocation = device.Allocate(size + kAlignment);
    region.device =
        static_cast<std::byte*>(region.allocation) + reinterpret_cast<uintptr_t>(region.begin) % kAlignment;
    device.CopyIn(region.device, region.begin, size);
  }
  for (std::vector<Operand>* operands : {&outputs_, &inputs_}) {
    for (Operand& operand : *operands) operand.data = Translate(operand.data);
  }
  call_.outputs = outputs_;
  call_.inputs = inputs_;
  call_.error_word = static_cast<uint64_t*>(Translate(call.error_word));
}

GpuMemory::~GpuMemory() {
  for (const Region& region : regions_) device_.Free(region.allocation);
}

void GpuMemory::CopyBack() {
  for (const Region& region : regions_)
    device_.CopyOut(region.begin, region.device, static_cast<size_t>(region.end - region.begin));
}

void GpuMemory::AddRegion(const Operand& operand) {
  if (operand.immediate || operand.data == nullptr) return;
  int64_t reach = 1;
  for (size_t d = 0; d < operand.rank; ++d)
    reach += (std::max<int64_t>(operand.sizes[d], 1) - 1) * operand.strides[d];
  auto* const data = static_cast<std::byte*>(operand.data);
  regions_.push_back({data - TestTensor::kMargin,
                      data + static_cast<size_t>(reach) * ops::SizeOf(operand.dtype) + TestTensor::kMargin});
}

void GpuMemory::MergeRegions() {
  std::sort(regions_.begin(), regions_.end(),
            [](const Region& x, const Region& y) { return x.begin < y.begin; });
  std::vector<Region> merged;
  for (const Region& region : regions_) {
    if (!merged.empty() && region.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, region.end);
    } else {
      merged.push_back(region);
    }
  }
  regions_ = std::move(merged);
}

void* GpuMemory::Translate(void* host) const {
  if (host == nullptr) return nullptr;
  auto* const address = static_cast<std::byte*>(host);
  for (const Region& region : regions_) {
    if (address >= region.begin && address < region.end) return region.device + (address - region.begin);
  }
  XPUD_CHECK(false);
  return nullptr;
}

}  // namespace xpud::kernels
