#include "drivers/frontend/context.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "drivers/frontend/entry.h"

namespace xpud::drivers {
namespace {

bool Has(ze_driver_memory_free_policy_ext_flags_t policy, ze_driver_memory_free_policy_ext_flag_t flag) {
  return (policy & static_cast<ze_driver_memory_free_policy_ext_flags_t>(flag)) != 0;
}

}  // namespace

ze_result_t ReadSharing(const Driver& driver, const void* next, MemoryRequest& request) {
  using Import = const ze_external_memory_import_fd_t;
  using Export = const ze_external_memory_export_desc_t;
  if (Import* const import = FindInChain<Import>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD)) {
    XPUD_REQUIRE(driver.HasExtensions() && IsOpaqueFdOnly(import->flags),
                 ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
    XPUD_REQUIRE(import->fd >= 0, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    request.import_fd = import->fd;
  }
  if (Export* const exported = FindInChain<Export>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC)) {
    XPUD_REQUIRE(driver.HasExtensions() && IsOpaqueFdOnly(exported->flags),
                 ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
    request.exportable = true;
  }
  return ZE_RESULT_SUCCESS;
}

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

ze_result_t Context::Reserve(void* start, size_t size, void*& base) {
  std::unique_ptr<AddressRange> range;
  ze_result_t result = ReserveRange(start, size, range);
  if (result == ZE_RESULT_ERROR_OVERLAPPING_REGIONS && !driver()->HasExtensions())
    result = ReserveRange(nullptr, size, range);
  if (result != ZE_RESULT_SUCCESS) return result;
  base = range->base();
  virtual_memory_.Reserve(std::move(range));
  return ZE_RESULT_SUCCESS;
}

ze_result_t Context::CreatePhysicalMemory(const MemoryRequest& request,
                                          std::unique_ptr<PhysicalMemory>& memory) {
  FreeDeferred();
  std::unique_ptr<PhysicalBlock> block;
  const ze_result_t result = AllocatePhysicalBlock(request, block);
  if (result != ZE_RESULT_SUCCESS) return result;
  const bool exportable = request.exportable || request.import_fd >= 0;
  memory = std::make_unique<PhysicalMemory>(*this, driver(), *request.device, exportable,
                                            allocations_.TakeId(), std::move(block));
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
    result = ExportIfAsked(properties.pNext, allocation.exportable, *allocation.block);
  });
  if (properties.type != ZE_MEMORY_TYPE_UNKNOWN) return result;
  virtual_memory_.Visit(address, [&](const MappedMemory& mapped) {
    const PhysicalMemory& memory = *mapped.memory;
    properties.type = ZE_MEMORY_TYPE_DEVICE;
    properties.id = memory.id();
    properties.pageSize = PageSize(mapped.size);
    device = &memory.device();
    result = ExportIfAsked(properties.pNext, memory.exportable(), memory.block());
  });
  return result;
}

ze_result_t Context::GetAddressRange(const void* address, void*& base, size_t& size) const {
  const bool allocated = allocations_.Visit(address, [&](const Allocation& allocation) {
    base = allocation.block->base();
    size = allocation.block->size();
  });
  const bool found = allocated || virtual_memory_.Visit(address, [&](const MappedMemory& mapped) {
    base = mapped.base;
    size = mapped.size;
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
