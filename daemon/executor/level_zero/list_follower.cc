#include "daemon/executor/level_zero/list_follower.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/executor/level_zero/ze_status.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {
namespace {

constexpr uint32_t kEventsOfAPool = 64;
// Some drivers never return from an endless wait after the device was reset.
constexpr uint64_t kWaitSliceNs = 100'000'000;
constexpr uint64_t kMaxWaitNs = uint64_t{1'000'000'000} * 86'400 * 365;  // more would overflow the clock

}  // namespace

absl::StatusOr<std::unique_ptr<ListFollower>> ListFollower::Create(ze_context_handle_t context,
                                                                   ze_device_handle_t device,
                                                                   ze_command_list_handle_t list) {
  std::unique_ptr<ListFollower> follower(new ListFollower(context, device, list));
  ASSIGN_OR_RETURN(follower->thread_,
                   StartThread("xpud-follow", [follower = follower.get()] { follower->Main(); }));
  return follower;
}

ListFollower::~ListFollower() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  for (ze_event_handle_t event : events_) zeEventDestroy(event);
  for (ze_event_pool_handle_t pool : pools_) zeEventPoolDestroy(pool);
}

absl::StatusOr<ze_event_handle_t> ListFollower::TakeEvent() {
  {
    MutexLock lock(mutex_);
    if (!free_.empty()) {
      ze_event_handle_t const event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  const auto index = static_cast<uint32_t>(events_.size() % kEventsOfAPool);
  if (index == 0 && pools_.size() * kEventsOfAPool == events_.size()) {
    const ze_event_pool_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr,
                                       ZE_EVENT_POOL_FLAG_HOST_VISIBLE, kEventsOfAPool};
    ze_device_handle_t device = device_;
    ze_event_pool_handle_t pool = nullptr;
    RETURN_IF_ZE_ERROR(zeEventPoolCreate(context_, &desc, 1, &device, &pool));
    pools_.push_back(pool);
  }
  const ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, index, ZE_EVENT_SCOPE_FLAG_HOST,
                                ZE_EVENT_SCOPE_FLAG_HOST};
  ze_event_handle_t event = nullptr;
  RETURN_IF_ZE_ERROR(zeEventCreate(pools_.back(), &desc, &event));
  events_.push_back(event);
  return event;
}

absl::Status ListFollower::failure() {
  MutexLock lock(mutex_);
  return failure_;
}

absl::Status ListFollower::AppendMark(uint64_t* word, uint64_t value) {
  RETURN_IF_ERROR(failure());
  ASSIGN_OR_RETURN(ze_event_handle_t event, TakeEvent());
  const ze_result_t result = zeCommandListAppendBarrier(list_, event, 0, nullptr);
  MutexLock lock(mutex_);
  if (result != ZE_RESULT_SUCCESS) {
    free_.push_back(event);
    return ToStatus(result, "zeCommandListAppendBarrier");
  }
  appended_ = false;
  marks_.push_back({event, word, value});
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status ListFollower::Synchronize(uint64_t timeout_ns) {
  if (appended_) RETURN_IF_ERROR(AppendMark(nullptr, 0));
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, kMaxWaitNs));
  MutexLock lock(mutex_);
  while (!marks_.empty() && failure_.ok()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) return ToStatus(ZE_RESULT_NOT_READY, "waiting for a command list");
    changed_.WaitFor(mutex_, left);
  }
  return failure_;
}

ze_result_t ListFollower::WaitFor(ze_event_handle_t event) {
  for (;;) {
    const ze_result_t result = zeEventHostSynchronize(event, kWaitSliceNs);
    if (result != ZE_RESULT_NOT_READY) return result;
    MutexLock lock(mutex_);
    if (ending_) return result;
  }
}

void ListFollower::Main() {
  for (;;) {
    Mark mark;
    {
      MutexLock lock(mutex_);
      while (marks_.empty() && !ending_) changed_.Wait(mutex_);
      if (marks_.empty()) return;
      mark = marks_.front();
    }
    ze_result_t result = WaitFor(mark.event);
    if (result == ZE_RESULT_NOT_READY) return;
    if (result == ZE_RESULT_SUCCESS && mark.word != nullptr)
      std::atomic_ref<uint64_t>(*mark.word).store(mark.value, std::memory_order_release);
    if (result == ZE_RESULT_SUCCESS) result = zeEventHostReset(mark.event);
    MutexLock lock(mutex_);
    changed_.NotifyAll();
    if (result != ZE_RESULT_SUCCESS) {
      failure_ = ToStatus(result, "waiting for a command list");
      has_failed_.store(true, std::memory_order_release);
      return;
    }
    marks_.pop_front();
    free_.push_back(mark.event);
  }
}

}  // namespace xpud::executor
