// A context of the CUDA driver: its memory, event words and streams, over all devices of the driver. A
// device's own (primary) context is shared by all of these. Any thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "drivers/cuda/event_words.h"
#include "drivers/cuda/memory_block.h"
#include "drivers/cuda/stream.h"
#include "drivers/frontend/allocation_map.h"
#include "drivers/frontend/context.h"

namespace xpud::drivers::cuda {

using Allocation = drivers::Allocation<MemoryBlock>;

class CudaContext final : public Context {
 public:
  CudaContext(const Driver* driver, std::span<CudaDevice* const> devices)
      : Context(driver), devices_(devices.begin(), devices.end()) {}

  ze_result_t Allocate(const MemoryRequest& request, void*& address) override;
  ze_result_t Free(void* address, ze_driver_memory_free_policy_ext_flags_t policy) override;
  ze_result_t GetAllocProperties(const void* address, ze_memory_allocation_properties_t& properties,
                                 Device*& device) override;
  ze_result_t GetAddressRange(const void* address, void*& base, size_t& size) override;

  ze_result_t CreateQueue(Device& device, const ze_command_queue_desc_t& desc,
                          std::unique_ptr<CommandQueue>& queue) override;
  ze_result_t CreateList(Device& device, const ze_command_list_desc_t& desc,
                         std::unique_ptr<CommandList>& list) override;
  ze_result_t CreateImmediateList(Device& device, const ze_command_queue_desc_t& desc,
                                  std::unique_ptr<CommandList>& list) override;
  ze_result_t CreateEventPool(const ze_event_pool_desc_t& desc, std::unique_ptr<EventPool>& pool) override;
  ze_result_t CreateModule(Device& device, const ze_module_desc_t& desc, std::unique_ptr<Module>& module,
                           std::string& log) override;

 private:
  ze_result_t AllocateBlock(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block);
  // Made at the first need: it takes an active device.
  ze_result_t Words(std::shared_ptr<EventWords>& words) ABSL_LOCKS_EXCLUDED(mutex_);
  ze_result_t CreateStream(Device& device, const ze_command_queue_desc_t& desc,
                           std::shared_ptr<Stream>& stream) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<Stream>> Streams() ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives back deferred memory when no stream has work that could use it.
  void FreeDeferred() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<CudaDevice*> devices_;
  AllocationMap<MemoryBlock> allocations_;
  Mutex mutex_;
  std::shared_ptr<EventWords> words_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<Allocation> deferred_ ABSL_GUARDED_BY(mutex_);
};

// An active device, for what belongs to none: one that is active already, or else the first.
ze_result_t AnyActive(std::span<CudaDevice* const> devices, CudaDevice*& device);

}  // namespace xpud::drivers::cuda
