// Interfaces of events, event pools and fences. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>

#include "drivers/frontend/object.h"

namespace xpud::drivers {

class Event : public Object {
 public:
  using Object::Object;
  using Handle = ze_event_handle_t;
  static constexpr Kind kKind = Kind::kEvent;

  virtual void HostSignal() = 0;
  virtual void HostReset() = 0;
  virtual ze_result_t QueryStatus() const = 0;                   // SUCCESS or NOT_READY
  virtual ze_result_t HostSynchronize(uint64_t timeout_ns) = 0;  // SUCCESS or NOT_READY
  virtual ze_result_t QueryTimestamp(
      ze_kernel_timestamp_result_t& timestamp) const = 0;  // NOT_READY before the signal
};

class EventPool : public Object {
 public:
  using Object::Object;
  using Handle = ze_event_pool_handle_t;
  static constexpr Kind kKind = Kind::kEventPool;

  virtual ze_result_t CreateEvent(const ze_event_desc_t& desc, std::unique_ptr<Event>& event) = 0;
};

class Fence : public Object {
 public:
  using Object::Object;
  using Handle = ze_fence_handle_t;
  static constexpr Kind kKind = Kind::kFence;

  virtual void Reset() = 0;
  virtual ze_result_t QueryStatus() const = 0;
  virtual ze_result_t HostSynchronize(uint64_t timeout_ns) = 0;
};

}  // namespace xpud::drivers
