// The appends that lists of all back ends share: each makes an operation. `List` derives from this, has
// `Append(operation, sync)` for every operation, and adds the launches. `EventType` is the back end's event.
#pragma once

#include <span>

#include "drivers/frontend/command_list.h"
#include "drivers/frontend/operations.h"

namespace xpud::drivers {

template <typename List, typename EventType>
class AppendingList : public CommandList {
 public:
  using State = typename EventType::State;

  ze_result_t AppendCopy(void* destination, const void* source, size_t size, const Sync& sync) final {
    return list().Append(Copy{destination, source, size}, sync);
  }
  ze_result_t AppendFill(void* destination, const void* pattern, size_t pattern_size, size_t size,
                         const Sync& sync) final {
    return list().Append(Fill{destination, static_cast<const std::byte*>(pattern), pattern_size, size}, sync);
  }
  ze_result_t AppendCopyRegion(const RegionCopy& region, const Sync& sync) final {
    return list().Append(CopyRegion{region}, sync);
  }
  ze_result_t AppendBarrier(const Sync& sync) final { return list().Append(Nothing{}, sync); }
  ze_result_t AppendEventReset(Event& event) final {
    return list().Append(ResetEvent<State>{static_cast<EventType&>(event).shared_state()}, Sync{});
  }
  ze_result_t AppendWriteTimestamp(uint64_t* destination, const Sync& sync) final {
    return list().Append(WriteTimestamp{destination}, sync);
  }
  ze_result_t AppendQueryTimestamps(std::span<Event* const> events, void* destination, const size_t* offsets,
                                    const Sync& sync) final {
    QueryTimestamps<State> query{{}, {}, static_cast<std::byte*>(destination)};
    for (Event* event : events) query.events.push_back(static_cast<EventType*>(event)->shared_state());
    if (offsets != nullptr) query.offsets.assign(offsets, offsets + events.size());
    return list().Append(query, sync);
  }
  ze_result_t AppendWriteValue64(uint64_t* address, uint64_t value) final {
    return list().Append(WriteValue64{address, value}, Sync{});
  }

 private:
  friend List;
  explicit AppendingList(const Driver* driver) : CommandList(driver) {}
  List& list() { return static_cast<List&>(*this); }
};

}  // namespace xpud::drivers
