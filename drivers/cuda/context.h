// A context of the CUDA driver: its memory, event words and streams, over all devices of the driver. A
// device's own (primary) context is shared by all of these. Any thread.
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

 private:
  ze_result_t AllocateBlock(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block) override;
  // Made at the first need: it takes an active device.
  ze_result_t Words(std::shared_ptr<EventWords>& words) ABSL_LOCKS_EXCLUDED(mutex_);
  ze_result_t CreateStream(Device& device, const ze_command_queue_desc_t& desc,
                           std::shared_ptr<Stream>& stream);

  const std::vector<CudaDevice*> devices_;
  Mutex mutex_;
  std::shared_ptr<EventWords> words_ ABSL_GUARDED_BY(mutex_);
};

// An active device, for what belongs to none: one that is active already, or else the first.
ze_result_t AnyActive(std::span<CudaDevice* const> devices, CudaDevice*& device);

}  // namespace xpud::drivers::cuda
