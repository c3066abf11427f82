#include "drivers/frontend/context.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "drivers/frontend/extension_chain.h"

namespace xpud::drivers {
namespace {

bool Has(ze_driver_memory_free_policy_ext_flags_t policy, ze_driver_memory_free_policy_ext_flag_t flag) {
  return (policy & static_cast<ze_driver_memory_free_policy_ext_flags_t>(flag)) != 0;
}

// Exports the allocation if the application's chain asks for an fd.
ze_result_t Export(const Allocation& allocation, const void* next) {
  using Wanted = ze_external_memory_export_fd_t;
  Wanted* const wanted = FindInChain<Wanted>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD);
  if (wanted == nullptr) return ZE_RESULT_SUCCESS;
  if (!IsOpaqueFdOnly(wanted->flags)) return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
  return allocation.exportable ? allocation.block->Export(wanted->fd) : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

}  // namespace

ze_result_t Context::Allocate(const MemoryRequest& request, void*& address) {
  FreeDeferred();
  std::unique_ptr<MemoryBlock> block;
  const ze_result_t result = AllocateBlock(request, block);
  if (result != ZE_RESULT_SUCCESS) return result;
  address = block->base();
  const bool exportable = request.exportable || request.import_fd >= 0;
  allocations_.Insert({request.type, request.device, exportable, 0, std::move(block)});
  return ZE_RESULT_SUCCESS;
}

ze_result_t Context::Free(void* address, ze_driver_memory_free_policy_ext_flags_t policy) {
  constexpr auto kBlocking = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE;
  constexpr auto kDeferred = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
  if ((policy & ~static_cast<ze_driver_memory_free_policy_ext_flags_t>(kBlocking | kDeferred)) != 0)
    return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  std::optional<Allocation> allocation = allocations_.Remove(address);
  if (!allocation) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (Has(policy, kDeferred)) {
    {
      MutexLock lock(mutex_);
      deferred_.push_back(*std::move(allocation));
    }
    FreeDeferred();
    return ZE_RESULT_SUCCESS;
  }
  if (!Has(policy, kBlocking)) return ZE_RESULT_SUCCESS;
  for (const auto& timeline : Timelines()) {
    const ze_result_t result = timeline->Wait(UINT64_MAX);
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  return ZE_RESULT_SUCCESS;
}

void Context::FreeDeferred() {
  std::vector<Allocation> freed;  // destroyed after the lock is released: freeing may wait for a device
  MutexLock lock(mutex_);
  if (deferred_.empty()) return;
  for (const auto& known : timelines_) {
    const std::shared_ptr<Timeline> timeline = known.lock();
    if (timeline != nullptr && timeline->Wait(0) == ZE_RESULT_NOT_READY) return;
  }
  freed.swap(deferred_);
}

ze_result_t Context::GetAllocProperties(const void* address, ze_memory_allocation_properties_t& properties,
                                        Device*& device) const {
  properties.type = ZE_MEMORY_TYPE_UNKNOWN;
  properties.id = 0;
  properties.pageSize = 0;
  ze_result_t result = ZE_RESULT_SUCCESS;
  allocations_.Visit(address, [&](const Allocation& allocation) {
    properties.type = allocation.type;
    properties.id = allocation.id;
    properties.pageSize = allocation.block->page_size();
    device = allocation.device;
    result = Export(allocation, properties.pNext);
  });
  return result;
}

ze_result_t Context::GetAddressRange(const void* address, void*& base, size_t& size) const {
  const bool found = allocations_.Visit(address, [&](const Allocation& allocation) {
    base = allocation.block->base();
    size = allocation.block->size();
  });
  return found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

void Context::Track(const std::shared_ptr<Timeline>& timeline) {
  MutexLock lock(mutex_);
  std::erase_if(timelines_, [](const std::weak_ptr<Timeline>& known) { return known.expired(); });
  timelines_.push_back(timeline);
}

std::vector<std::shared_ptr<Timeline>> Context::Timelines() {
  std::vector<std::shared_ptr<Timeline>> timelines;
  MutexLock lock(mutex_);
  for (const auto& known : timelines_) {
    if (auto timeline = known.lock()) timelines.push_back(std::move(timeline));
  }
  return timelines;
}

}  // namespace xpud::drivers
