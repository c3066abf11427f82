// Interface of a context: owns memory and creates everything that runs on a device. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <string>
#include <vector>

#include "drivers/frontend/address_range.h"
#include "drivers/frontend/allocation_map.h"
#include "drivers/frontend/command_list.h"
#include "drivers/frontend/driver.h"
#include "drivers/frontend/event.h"
#include "drivers/frontend/extension_chain.h"
#include "drivers/frontend/memory_block.h"
#include "drivers/frontend/module.h"
#include "drivers/frontend/physical_memory.h"
#include "drivers/frontend/timeline.h"
#include "drivers/frontend/virtual_memory.h"
#include "proto/base/mutex.h"

namespace xpud::drivers {

// An allocation to make.
struct MemoryRequest {
  ze_memory_type_t type;
  size_t size;
  size_t alignment;          // a power of two, or 0
  Device* device = nullptr;  // null for host memory, and for shared memory of no device
  bool exportable = false;   // new memory that other processes can map
  int import_fd = -1;        // the caller's fd of memory to map; -1: new memory
  void* address = nullptr;   // required address, a multiple of XPUD_MEM_ADDRESS_UNIT; null: any
};

// Reads the structures of a descriptor's chain that ask for memory that processes share. A driver without our
// extensions refuses them.
ze_result_t ReadSharing(const Driver& driver, const void* next, MemoryRequest& request);

class Context : public Object {
 public:
  using Object::Object;
  using Handle = ze_context_handle_t;
  static constexpr Kind kKind = Kind::kContext;

  ze_result_t Allocate(const MemoryRequest& request, void*& address);
  ze_result_t Free(void* address, ze_driver_memory_free_policy_ext_flags_t policy)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Reserves addresses at `start`, or anywhere if that is null. Returns OVERLAPPING_REGIONS if they are in
  // use; a driver without our extensions then takes others.
  ze_result_t Reserve(void* start, size_t size, void*& base);
  // REQUIRES: the request is for whole pages of device memory.
  ze_result_t CreatePhysicalMemory(const MemoryRequest& request, std::unique_ptr<PhysicalMemory>& memory);
  VirtualMemory& virtual_memory() { return virtual_memory_; }
  // The page size to use for reservations and physical memory of `size`. That of 1 divides all others.
  virtual size_t PageSize(size_t size) const = 0;
  // `device` is null if the memory belongs to no device. For memory that is not ours, returns success with
  // type UNKNOWN.
  ze_result_t GetAllocProperties(const void* address, ze_memory_allocation_properties_t& properties,
                                 Device*& device) const;
  ze_result_t GetAddressRange(const void* address, void*& base, size_t& size) const;

  // REQUIRES: the descriptors of queues, lists and pools are checked.
  virtual ze_result_t CreateQueue(Device& device, const ze_command_queue_desc_t& desc,
                                  std::unique_ptr<CommandQueue>& queue) = 0;
  virtual ze_result_t CreateList(Device& device, const ze_command_list_desc_t& desc,
                                 std::unique_ptr<CommandList>& list) = 0;
  virtual ze_result_t CreateImmediateList(Device& device, const ze_command_queue_desc_t& desc,
                                          std::unique_ptr<CommandList>& list) = 0;
  virtual ze_result_t CreateEventPool(const ze_event_pool_desc_t& desc, std::unique_ptr<EventPool>& pool) = 0;
  // `log` receives the reason of a refusal.
  virtual ze_result_t CreateModule(Device& device, const ze_module_desc_t& desc,
                                   std::unique_ptr<Module>& module, std::string& log) = 0;

 protected:
  // Registers a timeline whose work may use the context's memory.
  void Track(const std::shared_ptr<Timeline>& timeline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  virtual ze_result_t AllocateBlock(const MemoryRequest& request, std::unique_ptr<MemoryBlock>& block) = 0;
  virtual ze_result_t AllocatePhysicalBlock(const MemoryRequest& request,
                                            std::unique_ptr<PhysicalBlock>& block) = 0;
  // Returns OVERLAPPING_REGIONS unless the range begins at `start`; null: anywhere.
  virtual ze_result_t ReserveRange(void* start, size_t size, std::unique_ptr<AddressRange>& range) = 0;
  std::vector<std::shared_ptr<Timeline>> Timelines() ABSL_LOCKS_EXCLUDED(mutex_);
  // Frees deferred memory if no timeline has work that could use it.
  void FreeDeferred() ABSL_LOCKS_EXCLUDED(mutex_);

  AllocationMap allocations_;
  VirtualMemory virtual_memory_;
  Mutex mutex_;
  std::vector<std::weak_ptr<Timeline>> timelines_ ABSL_GUARDED_BY(mutex_);
  std::vector<Allocation> deferred_ ABSL_GUARDED_BY(mutex_);
};

// Exports `block` (a MemoryBlock or a PhysicalBlock) if the chain of an application's query asks for an fd.
template <typename Block>
ze_result_t ExportIfAsked(const void* next, bool exportable, const Block& block) {
  using Wanted = ze_external_memory_export_fd_t;
  Wanted* const wanted = FindInChain<Wanted>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD);
  if (wanted == nullptr) return ZE_RESULT_SUCCESS;
  if (!IsOpaqueFdOnly(wanted->flags)) return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
  return exportable ? block.Export(wanted->fd) : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

}  // namespace xpud::drivers
