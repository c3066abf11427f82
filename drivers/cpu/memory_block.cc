#include "drivers/cpu/memory_block.h"

#include "proto/base/ze_ext.h"

namespace xpud::drivers::cpu {

ze_result_t CpuMemoryBlock::Create(CpuDevice& device, const MemoryRequest& request,
                                   std::unique_ptr<MemoryBlock>& block) {
  using Kind = CpuPhysicalBlock::Kind;
  std::unique_ptr<CpuPhysicalBlock> pages;
  std::unique_ptr<CpuAddressRange> range;
  ze_result_t result =
      CpuPhysicalBlock::Create(device, request, request.exportable ? Kind::kShared : Kind::kPrivate, pages);
  if (result != ZE_RESULT_SUCCESS) return result;
  const size_t whole = RoundUp(request.size, kPage);
  const size_t reserved = request.address == nullptr ? whole : RoundUp(whole, XPUD_MEM_ADDRESS_UNIT);
  result = CpuAddressRange::Reserve(reserved, request.alignment, request.address, range);
  if (result != ZE_RESULT_SUCCESS) return result;
  result = range->Map(range->base(), whole, *pages, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
  if (result == ZE_RESULT_SUCCESS) block.reset(new CpuMemoryBlock(std::move(pages), std::move(range)));
  return result;
}

}  // namespace xpud::drivers::cpu
