// A context of the CUDA driver: its memory, event words and streams, for all devices of the driver. All
// contexts share each device's primary CUDA context. Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "drivers/cuda/event_words.h"
#include "drivers/cuda/stream.h"
#include "drivers/frontend/context.h"

namespace xpud::drivers::cuda {

class CudaContext final : public Context {
 public:
  CudaContext(const Driver* driver, std::span<CudaDevice* const> devices)
      : Context(driver), devices_(devices.begin(), devices.end()) {}

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
  // Created at the first use, because it needs an active device.
  ze_result_t Words(std::shared_ptr<EventWords>& words) ABSL_LOCKS_EXCLUDED(mutex_);
  ze_result_t CreateStream(Device& device, const ze_command_queue_desc_t& desc,
                           std::shared_ptr<Stream>& stream);

  const std::vector<CudaDevice*> devices_;
  Mutex mutex_;
  std::shared_ptr<EventWords> words_ ABSL_GUARDED_BY(mutex_);
};

// Returns an active device, for resources that belong to no device: an already active one, or the first after
// activating it.
ze_result_t AnyActive(std::span<CudaDevice* const> devices, CudaDevice*& device);

}  // namespace xpud::drivers::cuda
