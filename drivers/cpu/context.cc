#include "drivers/cpu/context.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "drivers/cpu/command_list.h"
#include "drivers/cpu/command_queue.h"
#include "drivers/cpu/event.h"
#include "drivers/cpu/module.h"
#include "drivers/frontend/extension_chain.h"

namespace xpud::drivers::cpu {
namespace {

// Queue descriptors: one group, a few indices, and API 1.9's in-order flag, which our lists always honour.
ze_result_t CheckQueue(const CpuDevice& device, const ze_command_queue_desc_t& desc) {
  constexpr ze_command_queue_flags_t kKnown =
      ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY | XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
  if ((desc.flags & ~kKnown) != 0) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  if (desc.ordinal != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  return desc.index < device.queues() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

}  // namespace

CpuContext::~CpuContext() {
  for (Allocation& allocation : deferred_) Release(std::move(allocation));
  for (Allocation& allocation : allocations_.RemoveAll()) Release(std::move(allocation));
}

ze_result_t CpuContext::Allocate(const MemoryRequest& request, void*& address) {
  FreeDeferred();
  if (request.size > device_.memory()) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  // Imported memory is charged where it was allocated.
  const uint64_t charged = request.import_fd >= 0 ? 0 : request.size;
  if (!device_.Charge(charged)) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  std::unique_ptr<MemoryBlock> block;
  const ze_result_t result =
      request.import_fd >= 0 ? MemoryBlock::Import(request, block) : MemoryBlock::Create(request, block);
  if (result != ZE_RESULT_SUCCESS) {
    device_.Discharge(charged);
    return result;
  }
  address = block->base();
  const bool exportable = block->fd().valid();
  allocations_.Insert({request.type, request.device, exportable, 0, charged, std::move(block)});
  return ZE_RESULT_SUCCESS;
}

void CpuContext::Release(Allocation allocation) { device_.Discharge(allocation.charged); }

ze_result_t CpuContext::Free(void* address, ze_driver_memory_free_policy_ext_flags_t policy) {
  constexpr auto kKnown =
      ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE | ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
  if ((policy & ~static_cast<ze_driver_memory_free_policy_ext_flags_t>(kKnown)) != 0) {
    return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  }
  std::optional<Allocation> allocation = allocations_.Remove(address);
  if (!allocation) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if ((policy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE) != 0) {
    {
      MutexLock lock(mutex_);
      deferred_.push_back(*std::move(allocation));
    }
    FreeDeferred();
    return ZE_RESULT_SUCCESS;
  }
  if ((policy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE) != 0) {
    for (const auto& lane : Lanes()) lane->Wait(UINT64_MAX);
  }
  Release(*std::move(allocation));
  return ZE_RESULT_SUCCESS;
}

void CpuContext::FreeDeferred() {
  std::vector<Allocation> freed;
  {
    MutexLock lock(mutex_);
    if (deferred_.empty()) return;
    for (const auto& weak : lanes_) {
      const std::shared_ptr<Lane> lane = weak.lock();
      if (lane != nullptr && !lane->idle()) return;
    }
    freed.swap(deferred_);
  }
  for (Allocation& allocation : freed) Release(std::move(allocation));
}

ze_result_t CpuContext::GetAllocProperties(const void* address, ze_memory_allocation_properties_t& properties,
                                           Device*& device) {
  using Export = ze_external_memory_export_fd_t;
  Export* const exported = FindInChain<Export>(properties.pNext, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD);
  ze_result_t result = ZE_RESULT_SUCCESS;
  const auto read = [&](const Allocation& allocation) {
    properties.type = allocation.type;
    properties.id = allocation.id;
    properties.pageSize = allocation.block->page_size();
    device = allocation.device;
    if (exported == nullptr) return;
    if (!IsOpaqueFdOnly(exported->flags)) {
      result = ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    } else if (!allocation.exportable) {
      result = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    } else {
      exported->fd = fcntl(allocation.block->fd().get(), F_DUPFD_CLOEXEC, 0);
      if (exported->fd < 0) result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
  };
  if (!allocations_.Visit(address, read)) {
    properties.type = ZE_MEMORY_TYPE_UNKNOWN;
    properties.id = 0;
    properties.pageSize = 0;
  }
  return result;
}

ze_result_t CpuContext::GetAddressRange(const void* address, void*& base, size_t& size) {
  const bool found = allocations_.Visit(address, [&](const Allocation& allocation) {
    base = allocation.block->base();
    size = allocation.block->size();
  });
  return found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

std::shared_ptr<Lane> CpuContext::CreateLane() {
  auto lane = std::make_shared<Lane>(device_.pool());
  MutexLock lock(mutex_);
  std::erase_if(lanes_, [](const std::weak_ptr<Lane>& known) { return known.expired(); });
  lanes_.push_back(lane);
  return lane;
}

std::vector<std::shared_ptr<Lane>> CpuContext::Lanes() {
  std::vector<std::shared_ptr<Lane>> lanes;
  MutexLock lock(mutex_);
  for (const auto& weak : lanes_) {
    if (auto lane = weak.lock()) lanes.push_back(std::move(lane));
  }
  return lanes;
}

ze_result_t CpuContext::CreateQueue(Device&, const ze_command_queue_desc_t& desc,
                                    std::unique_ptr<CommandQueue>& queue) {
  const ze_result_t result = CheckQueue(device_, desc);
  if (result != ZE_RESULT_SUCCESS) return result;
  const bool synchronous = desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
  queue = std::make_unique<CpuCommandQueue>(driver(), CreateLane(), synchronous);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuContext::CreateList(Device&, const ze_command_list_desc_t& desc,
                                   std::unique_ptr<CommandList>& list) {
  if (desc.commandQueueGroupOrdinal != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  list = std::make_unique<RegularList>(driver());
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuContext::CreateImmediateList(Device&, const ze_command_queue_desc_t& desc,
                                            std::unique_ptr<CommandList>& list) {
  const ze_result_t result = CheckQueue(device_, desc);
  if (result != ZE_RESULT_SUCCESS) return result;
  const bool synchronous = desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
  list = std::make_unique<ImmediateList>(driver(), CreateLane(), synchronous);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuContext::CreateEventPool(const ze_event_pool_desc_t& desc, std::unique_ptr<EventPool>& pool) {
  if ((desc.flags & ZE_EVENT_POOL_FLAG_IPC) != 0) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  pool = std::make_unique<CpuEventPool>(driver(), desc);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuContext::CreateModule(Device&, const ze_module_desc_t& desc, std::unique_ptr<Module>& module,
                                     std::string& log) {
  return CpuModule::Create(driver(), desc, module, log);
}

}  // namespace xpud::drivers::cpu
