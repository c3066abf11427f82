// A context of the CPU driver: its memory, and the threads of its queues and immediate lists. A thread, a
// list and a kernel belong to the device that they were made for. Thread-safe.
#pragma once

#include <memory>

#include "drivers/cpu/command_thread.h"
#include "drivers/cpu/device.h"
#include "drivers/frontend/context.h"

namespace xpud::drivers::cpu {

class CpuContext final : public Context {
 public:
  // Memory of no device is charged to the driver's `first` device.
  CpuContext(const Driver* driver, CpuDevice& first) : Context(driver), first_(first) {}

  ze_result_t CreateQueue(Device& device, const ze_command_queue_desc_t& desc,
                          std::unique_ptr<CommandQueue>& queue) override;
  ze_result_t CreateList(Device& device, const ze_command_list_desc_t& desc,
                         std::unique_ptr<CommandList>& list) override;
  ze_result_t CreateImmediateList(Device& device, const ze_command_queue_desc_t& desc,
                                  std::unique_ptr<CommandList>& list) override;
  ze_result_t CreateEventPool(const ze_event_pool_desc_t& desc, std::unique_ptr<EventPool>& pool) override;
  ze_result_t CreateModule(Device& device, const ze_module_desc_t& desc, std::unique_ptr<Module>& module,
                           std::string& log) override;
  size_t PageSize(size_t size) const override;

 private:
  ze_result_t AllocateBlock(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block) override;
  ze_result_t AllocatePhysicalBlock(const MemoryRequest& request,
                                    std::unique_ptr<PhysicalBlock>& block) override;
  ze_result_t ReserveRange(void* start, size_t size, std::unique_ptr<AddressRange>& range) override;
  std::shared_ptr<CommandThread> CreateThread(CpuDevice& device, bool in_order = true);

  CpuDevice& first_;
};

}  // namespace xpud::drivers::cpu
