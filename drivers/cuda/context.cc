#include "drivers/cuda/context.h"

#include <algorithm>
#include <utility>

#include "drivers/cuda/command_list.h"
#include "drivers/cuda/command_queue.h"
#include "drivers/cuda/event.h"
#include "drivers/cuda/memory_block.h"
#include "drivers/cuda/module.h"

namespace xpud::drivers::cuda {

ze_result_t AnyActive(std::span<CudaDevice* const> devices, CudaDevice*& device) {
  const auto found = std::find_if(devices.begin(), devices.end(), [](CudaDevice* d) { return d->active(); });
  device = found == devices.end() ? devices.front() : *found;
  return device->Activate();
}

ze_result_t CudaContext::AllocateBlock(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block) {
  auto* device = static_cast<CudaDevice*>(request.device);
  const ze_result_t result = device == nullptr ? AnyActive(devices_, device) : device->Activate();
  return result == ZE_RESULT_SUCCESS ? CudaMemoryBlock::Create(*device, request, block) : result;
}

ze_result_t CudaContext::AllocatePhysicalBlock(const MemoryRequest& request,
                                               std::unique_ptr<PhysicalBlock>& block) {
  auto& device = static_cast<CudaDevice&>(*request.device);
  if (request.size > device.memory()) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  std::unique_ptr<CudaPhysicalBlock> physical;
  ze_result_t result = device.Activate();
  if (result == ZE_RESULT_SUCCESS)
    result = CudaPhysicalBlock::Create(device, request.size, request.import_fd, physical);
  block = std::move(physical);
  return result;
}

ze_result_t CudaContext::ReserveRange(void* start, size_t size, std::unique_ptr<AddressRange>& range) {
  CudaDevice* device = nullptr;
  std::unique_ptr<CudaAddressRange> reserved;
  ze_result_t result = AnyActive(devices_, device);
  if (result == ZE_RESULT_SUCCESS) result = CudaAddressRange::Reserve(*device, size, 0, start, reserved);
  range = std::move(reserved);
  return result;
}

size_t CudaContext::PageSize(size_t /*size*/) const { return kPage; }

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
  ze_result_t result = ours.Activate();
  if (result == ZE_RESULT_SUCCESS) result = Stream::Create(ours, desc.priority, stream);
  if (result != ZE_RESULT_SUCCESS) return result;
  Track(stream);
  return ZE_RESULT_SUCCESS;
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

ze_result_t CudaContext::CreateList(Device&, const ze_command_list_desc_t&,
                                    std::unique_ptr<CommandList>& list) {
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
