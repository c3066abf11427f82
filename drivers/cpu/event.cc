#include "drivers/cpu/event.h"

#include <algorithm>

#include "drivers/cpu/futex.h"
#include "drivers/frontend/clock.h"

namespace xpud::drivers::cpu {
namespace {

// How long a stop request can go unnoticed.
constexpr uint64_t kStopPollNs = 10'000'000;

ze_result_t WaitOnHost(const EventState& state, uint64_t timeout_ns) {
  if (state.signalled()) return ZE_RESULT_SUCCESS;
  if (timeout_ns == 0) return ZE_RESULT_NOT_READY;
  return state.Wait(DeadlineAfter(timeout_ns), nullptr) ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

}  // namespace

void EventState::Signal() {
  // Sequentially consistent with Wait: either we see the waiter, or the waiter sees the signal.
  signalled_.store(1);
  if (waiters_.load() != 0) FutexWake(signalled_, INT32_MAX);
}

void EventState::SignalWithTimes(uint64_t start_ns, uint64_t end_ns) {
  start_ns_.store(start_ns, std::memory_order_relaxed);
  end_ns_.store(end_ns, std::memory_order_relaxed);
  Signal();
}

bool EventState::Wait(uint64_t deadline_ns, const std::atomic<bool>* stop) const {
  waiters_.fetch_add(1);
  bool done = signalled_.load() != 0;
  while (!done) {
    const uint64_t now = NowNs();
    if (now >= deadline_ns || (stop != nullptr && stop->load(std::memory_order_relaxed))) break;
    const uint64_t slice =
        std::min(deadline_ns - now, stop == nullptr ? uint64_t{3'600'000'000'000} : kStopPollNs);
    FutexWait(signalled_, 0, std::chrono::nanoseconds(slice));
    done = signalled();
  }
  waiters_.fetch_sub(1);
  return done;
}

ze_result_t EventState::ReadTimestamp(ze_kernel_timestamp_result_t& timestamp) const {
  if (!timestamps_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (!signalled()) return ZE_RESULT_NOT_READY;
  timestamp.global.kernelStart = start_ns_.load(std::memory_order_relaxed);
  timestamp.global.kernelEnd = end_ns_.load(std::memory_order_relaxed);
  timestamp.context = timestamp.global;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuEvent::HostSynchronize(uint64_t timeout_ns) { return WaitOnHost(*state_, timeout_ns); }

ze_result_t CpuFence::HostSynchronize(uint64_t timeout_ns) { return WaitOnHost(*state_, timeout_ns); }

ze_result_t CpuEventPool::CreateEvent(const ze_event_desc_t& desc, std::unique_ptr<Event>& event) {
  if (desc.index >= count_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  event = std::make_unique<CpuEvent>(driver(), timestamps_);
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cpu
