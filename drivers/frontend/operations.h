// Appended operations except launches, as data. A back end has `Run(operation, where)` for each. An operation
// borrows what it points at, besides the memory it works on; Keep returns a form that owns it and may run any
// number of times later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "drivers/frontend/command_list.h"

namespace xpud::drivers {

struct Nothing {};

struct Copy {
  void* destination;
  const void* source;
  size_t size;
};

struct CopyRegion {
  RegionCopy region;
};

struct Fill {
  void* destination;
  const std::byte* pattern;
  size_t pattern_size;
  size_t size;
};

struct KeptFill {
  void* destination;
  std::vector<std::byte> pattern;
  size_t size;
  Fill borrowed() const { return {destination, pattern.data(), pattern.size(), size}; }
};

struct WriteTimestamp {
  uint64_t* destination;
};

struct WriteValue64 {
  uint64_t* address;
  uint64_t value;
};

template <typename EventState>
struct ResetEvent {
  std::shared_ptr<EventState> event;
};

template <typename EventState>
struct QueryTimestamps {
  std::vector<std::shared_ptr<EventState>> events;
  std::vector<size_t> offsets;  // empty: one after another
  std::byte* destination;
  // Where the times of event i are stored.
  std::byte* target(size_t i) const {
    return destination + (offsets.empty() ? i * sizeof(ze_kernel_timestamp_result_t) : offsets[i]);
  }
};

template <typename Operation>
Operation Keep(const Operation& operation) {
  return operation;
}
inline KeptFill Keep(const Fill& fill) {
  return {fill.destination, {fill.pattern, fill.pattern + fill.pattern_size}, fill.size};
}

// The events of a stored command.
template <typename EventState>
struct KeptSync {
  // `EventType` is the back end's event.
  template <typename EventType>
  static KeptSync Of(const Sync& sync) {
    KeptSync kept;
    for (Event* event : sync.waits) kept.waits.push_back(static_cast<EventType*>(event)->shared_state());
    if (sync.signal != nullptr) kept.signal = static_cast<EventType*>(sync.signal)->shared_state();
    return kept;
  }

  std::vector<std::shared_ptr<EventState>> waits;
  std::shared_ptr<EventState> signal;
};

}  // namespace xpud::drivers
