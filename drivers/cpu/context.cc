#include "drivers/cpu/context.h"

#include "drivers/cpu/command_list.h"
#include "drivers/cpu/command_queue.h"
#include "drivers/cpu/event.h"
#include "drivers/cpu/memory_block.h"
#include "drivers/cpu/module.h"
#include "drivers/cpu/pages.h"

namespace xpud::drivers::cpu {
namespace {

// REQUIRES: the device belongs to the CPU driver.
CpuDevice& Ours(Device& device) { return static_cast<CpuDevice&>(device); }

}  // namespace

ze_result_t CpuContext::AllocateBlock(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block) {
  return CpuMemoryBlock::Create(request.device == nullptr ? first_ : Ours(*request.device), request, block);
}

// Memory that may be mapped several times cannot be private.
ze_result_t CpuContext::AllocatePhysicalBlock(const MemoryRequest& request,
                                              std::unique_ptr<PhysicalBlock>& block) {
  std::unique_ptr<CpuPhysicalBlock> pages;
  const ze_result_t result =
      CpuPhysicalBlock::Create(Ours(*request.device), request, CpuPhysicalBlock::Kind::kShared, pages);
  block = std::move(pages);
  return result;
}

ze_result_t CpuContext::ReserveRange(void* start, size_t size, std::unique_ptr<AddressRange>& range) {
  std::unique_ptr<CpuAddressRange> reserved;
  const ze_result_t result = CpuAddressRange::Reserve(size, 0, start, reserved);
  range = std::move(reserved);
  return result;
}

size_t CpuContext::PageSize(size_t size) const { return PageSizeOf(size); }

std::shared_ptr<CommandThread> CpuContext::CreateThread(CpuDevice& device, bool in_order) {
  auto thread = std::make_shared<CommandThread>(device, in_order);
  Track(thread);
  return thread;
}

ze_result_t CpuContext::CreateQueue(Device& device, const ze_command_queue_desc_t& desc,
                                    std::unique_ptr<CommandQueue>& queue) {
  queue = std::make_unique<CpuCommandQueue>(CreateThread(Ours(device)), IsSynchronous(desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuContext::CreateList(Device& device, const ze_command_list_desc_t&,
                                   std::unique_ptr<CommandList>& list) {
  list = std::make_unique<RegularList>(Ours(device));
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuContext::CreateImmediateList(Device& device, const ze_command_queue_desc_t& desc,
                                            std::unique_ptr<CommandList>& list) {
  list = std::make_unique<ImmediateList>(CreateThread(Ours(device), driver()->HasExtensions()),
                                         IsSynchronous(desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuContext::CreateEventPool(const ze_event_pool_desc_t& desc, std::unique_ptr<EventPool>& pool) {
  pool = std::make_unique<CpuEventPool>(driver(), desc);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuContext::CreateModule(Device& device, const ze_module_desc_t& desc,
                                     std::unique_ptr<Module>& module, std::string& log) {
  return CpuModule::Create(Ours(device), desc, module, log);
}

}  // namespace xpud::drivers::cpu
