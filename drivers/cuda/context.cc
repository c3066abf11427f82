#include "drivers/cuda/context.h"

#include <algorithm>
#include <utility>

#include "drivers/cuda/command_list.h"
#include "drivers/cuda/command_queue.h"
#include "drivers/cuda/event.h"
#include "drivers/cuda/module.h"
#include "drivers/frontend/extension_chain.h"

namespace xpud::drivers::cuda {
namespace {

// Queue descriptors: one group, many indices, and API 1.9's in-order flag, which our lists always honour.
ze_result_t CheckQueue(const CudaDevice& device, const ze_command_queue_desc_t& desc) {
  constexpr ze_command_queue_flags_t kKnown =
      ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY | XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
  if ((desc.flags & ~kKnown) != 0) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  if (desc.ordinal != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  return desc.index < device.queues() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

bool IsSynchronous(const ze_command_queue_desc_t& desc) {
  return desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
}

}  // namespace

ze_result_t AnyActive(std::span<CudaDevice* const> devices, CudaDevice*& device) {
  const auto found = std::find_if(devices.begin(), devices.end(), [](CudaDevice* d) { return d->active(); });
  device = found == devices.end() ? devices.front() : *found;
  return device->Activate();
}

ze_result_t CudaContext::AllocateBlock(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block) {
  CudaDevice* device = static_cast<CudaDevice*>(request.device);
  const ze_result_t result = device == nullptr ? AnyActive(devices_, device) : device->Activate();
  if (result != ZE_RESULT_SUCCESS) return result;
  if (request.size > device->memory()) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  if (request.type != ZE_MEMORY_TYPE_DEVICE) {
    // Pinned host memory, which is no physical memory of the device.
    if (request.import_fd >= 0 || request.exportable) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    return MemoryBlock::AllocateHost(*device, request.size, request.alignment, block);
  }
  return MemoryBlock::AllocateDevice(*device, request, block);
}

ze_result_t CudaContext::Allocate(const MemoryRequest& request, void*& address) {
  FreeDeferred();
  std::unique_ptr<MemoryBlock> block;
  const ze_result_t result = AllocateBlock(request, block);
  if (result != ZE_RESULT_SUCCESS) return result;
  address = block->base();
  const bool exportable = request.exportable || request.import_fd >= 0;
  allocations_.Insert({request.type, request.device, exportable, 0, 0, std::move(block)});
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaContext::Free(void* address, ze_driver_memory_free_policy_ext_flags_t policy) {
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
    for (const auto& stream : Streams()) {
      const ze_result_t result = stream->Wait(UINT64_MAX);
      if (result != ZE_RESULT_SUCCESS) return result;
    }
  }
  return ZE_RESULT_SUCCESS;
}

void CudaContext::FreeDeferred() {
  std::vector<Allocation> freed;  // outlives the lock: freeing waits for the device
  MutexLock lock(mutex_);
  if (deferred_.empty()) return;
  for (const auto& weak : streams_) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (stream != nullptr && stream->Query() == ZE_RESULT_NOT_READY) return;
  }
  freed.swap(deferred_);
}

ze_result_t CudaContext::GetAllocProperties(const void* address,
                                            ze_memory_allocation_properties_t& properties, Device*& device) {
  using Export = ze_external_memory_export_fd_t;
  Export* const exported = FindInChain<Export>(properties.pNext, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD);
  ze_result_t result = ZE_RESULT_SUCCESS;
  const bool found = allocations_.Visit(address, [&](const Allocation& allocation) {
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
      result = allocation.block->Export(exported->fd);
    }
  });
  if (!found) {
    properties.type = ZE_MEMORY_TYPE_UNKNOWN;
    properties.id = 0;
    properties.pageSize = 0;
  }
  return result;
}

ze_result_t CudaContext::GetAddressRange(const void* address, void*& base, size_t& size) {
  const bool found = allocations_.Visit(address, [&](const Allocation& allocation) {
    base = allocation.block->base();
    size = allocation.block->size();
  });
  return found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t CudaContext::Words(std::shared_ptr<EventWords>& words) {
  CudaDevice* device = nullptr;
  const ze_result_t result = AnyActive(devices_, device);
  if (result != ZE_RESULT_SUCCESS) return result;
  MutexLock lock(mutex_);
  if (words_ == nullptr) words_ = std::make_shared<EventWords>(*device, devices_);
  words = words_;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaContext::CreateStream(Device& device, const ze_command_queue_desc_t& desc,
                                      std::shared_ptr<Stream>& stream) {
  auto& ours = static_cast<CudaDevice&>(device);
  ze_result_t result = CheckQueue(ours, desc);
  if (result == ZE_RESULT_SUCCESS) result = ours.Activate();
  if (result == ZE_RESULT_SUCCESS) result = Stream::Create(ours, desc.priority, stream);
  if (result != ZE_RESULT_SUCCESS) return result;
  MutexLock lock(mutex_);
  std::erase_if(streams_, [](const std::weak_ptr<Stream>& known) { return known.expired(); });
  streams_.push_back(stream);
  return ZE_RESULT_SUCCESS;
}

std::vector<std::shared_ptr<Stream>> CudaContext::Streams() {
  std::vector<std::shared_ptr<Stream>> streams;
  MutexLock lock(mutex_);
  for (const auto& weak : streams_) {
    if (auto stream = weak.lock()) streams.push_back(std::move(stream));
  }
  return streams;
}

ze_result_t CudaContext::CreateQueue(Device& device, const ze_command_queue_desc_t& desc,
                                     std::unique_ptr<CommandQueue>& queue) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<EventWords> words;
  ze_result_t result = CreateStream(device, desc, stream);
  if (result == ZE_RESULT_SUCCESS) result = Words(words);
  if (result != ZE_RESULT_SUCCESS) return result;
  queue =
      std::make_unique<CudaCommandQueue>(driver(), std::move(stream), std::move(words), IsSynchronous(desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaContext::CreateList(Device&, const ze_command_list_desc_t& desc,
                                    std::unique_ptr<CommandList>& list) {
  if (desc.commandQueueGroupOrdinal != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  list = std::make_unique<RegularList>(driver());
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaContext::CreateImmediateList(Device& device, const ze_command_queue_desc_t& desc,
                                             std::unique_ptr<CommandList>& list) {
  std::shared_ptr<Stream> stream;
  const ze_result_t result = CreateStream(device, desc, stream);
  if (result != ZE_RESULT_SUCCESS) return result;
  list = std::make_unique<ImmediateList>(driver(), std::move(stream), IsSynchronous(desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaContext::CreateEventPool(const ze_event_pool_desc_t& desc, std::unique_ptr<EventPool>& pool) {
  if ((desc.flags & ZE_EVENT_POOL_FLAG_IPC) != 0) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  std::shared_ptr<EventWords> words;
  const ze_result_t result = Words(words);
  if (result != ZE_RESULT_SUCCESS) return result;
  pool = std::make_unique<CudaEventPool>(driver(), std::move(words), desc);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaContext::CreateModule(Device& device, const ze_module_desc_t& desc,
                                      std::unique_ptr<Module>& module, std::string& log) {
  auto& ours = static_cast<CudaDevice&>(device);
  const ze_result_t result = ours.Activate();
  return result == ZE_RESULT_SUCCESS ? CudaModule::Create(ours, desc, module, log) : result;
}

}  // namespace xpud::drivers::cuda
