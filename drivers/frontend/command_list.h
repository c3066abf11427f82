// Interfaces of command lists and queues. One thread appends to a list at a time; different lists may be used
// by different threads. HostSynchronize is thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "drivers/frontend/event.h"
#include "drivers/frontend/graph.h"
#include "drivers/frontend/module.h"
#include "drivers/frontend/object.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {

// The events that an append waits for and signals. They belong to the list's driver.
struct Sync {
  Event* signal = nullptr;
  std::span<Event* const> waits;
};

// A launch with its arguments. If `arguments` is null, those set on the kernel are used, with its group size.
struct LaunchShape {
  ze_group_count_t groups;
  const xpud_group_size_t* group_size = nullptr;
  const void* const* arguments = nullptr;
  const xpud_launch_part_desc_t* part = nullptr;  // set if the launch may stop early
};

// Pointers, strides and box of a region copy, with defaults for omitted (zero) depth and pitches.
struct RegionCopy {
  std::byte* destination;
  const std::byte* source;
  size_t width, height, depth;
  size_t destination_pitch, destination_slice_pitch;
  size_t source_pitch, source_slice_pitch;
};

inline bool IsSynchronous(const ze_command_queue_desc_t& desc) {
  return desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
}

class CommandList : public Object {
 public:
  using Object::Object;
  using Handle = ze_command_list_handle_t;
  static constexpr Kind kKind = Kind::kCommandList;

  virtual bool immediate() const = 0;
  virtual ze_result_t Close() = 0;
  virtual ze_result_t Reset() = 0;
  // For immediate lists only.
  virtual ze_result_t HostSynchronize(uint64_t timeout_ns) = 0;
  virtual ze_result_t BeginCapture() = 0;
  virtual ze_result_t EndCapture(std::unique_ptr<Graph>& graph) = 0;
  // Of a capturing list: how many operations it has captured.
  virtual ze_result_t CountCaptured(uint32_t&) const { return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE; }

  virtual ze_result_t AppendLaunch(Kernel& kernel, const LaunchShape& shape, const Sync& sync) = 0;
  // Reads the group counts when the launch is executed.
  virtual ze_result_t AppendLaunchIndirect(Kernel& kernel, const ze_group_count_t* groups,
                                           const Sync& sync) = 0;
  virtual ze_result_t AppendLaunchMultiple(std::span<Kernel* const> kernels, const uint32_t* count,
                                           const ze_group_count_t* groups, const Sync& sync) = 0;
  virtual ze_result_t AppendCopy(void* destination, const void* source, size_t size, const Sync& sync) = 0;
  virtual ze_result_t AppendFill(void* destination, const void* pattern, size_t pattern_size, size_t size,
                                 const Sync& sync) = 0;
  virtual ze_result_t AppendCopyRegion(const RegionCopy& region, const Sync& sync) = 0;
  virtual ze_result_t AppendBarrier(const Sync& sync) = 0;
  virtual ze_result_t AppendEventReset(Event& event) = 0;
  virtual ze_result_t AppendWriteTimestamp(uint64_t* destination, const Sync& sync) = 0;
  virtual ze_result_t AppendQueryTimestamps(std::span<Event* const> events, void* destination,
                                            const size_t* offsets, const Sync& sync) = 0;
  virtual ze_result_t AppendWriteValue64(uint64_t* address, uint64_t value) = 0;
  virtual ze_result_t AppendGraph(ExecutableGraph& graph, const Sync& sync) = 0;
};

class CommandQueue : public Object {
 public:
  using Object::Object;
  using Handle = ze_command_queue_handle_t;
  static constexpr Kind kKind = Kind::kCommandQueue;

  // Runs closed lists in order, then signals the fence, if any.
  virtual ze_result_t Execute(std::span<CommandList* const> lists, Fence* fence) = 0;
  virtual ze_result_t Synchronize(uint64_t timeout_ns) = 0;
  virtual ze_result_t CreateFence(const ze_fence_desc_t& desc, std::unique_ptr<Fence>& fence) = 0;
};

}  // namespace xpud::drivers
