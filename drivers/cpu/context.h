// A context of the CPU driver: its memory, and the lanes of its queues and immediate lists. Any thread.
#pragma once

#include <memory>
#include <vector>

#include "drivers/cpu/device.h"
#include "drivers/cpu/lane.h"
#include "drivers/cpu/memory_block.h"
#include "drivers/frontend/allocation_map.h"
#include "drivers/frontend/context.h"

namespace xpud::drivers::cpu {

using Allocation = drivers::Allocation<MemoryBlock>;

class CpuContext final : public Context {
 public:
  CpuContext(const Driver* driver, CpuDevice& device) : Context(driver), device_(device) {}
  ~CpuContext() override;

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
  std::shared_ptr<Lane> CreateLane() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<Lane>> Lanes() ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives back deferred memory when no lane has work that could use it.
  void FreeDeferred() ABSL_LOCKS_EXCLUDED(mutex_);
  void Release(Allocation allocation);

  CpuDevice& device_;
  AllocationMap<MemoryBlock> allocations_;
  Mutex mutex_;
  std::vector<std::weak_ptr<Lane>> lanes_ ABSL_GUARDED_BY(mutex_);
  std::vector<Allocation> deferred_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::drivers::cpu
