// Follows the work of an immediate list with events and a thread of its own, for drivers that lack
// zeCommandListHostSynchronize or xpudCommandListAppendWriteValue64. REQUIRES: the thread that appends to the
// list, unless a function says otherwise.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace xpud::executor {

class ListFollower {
 public:
  static absl::StatusOr<std::unique_ptr<ListFollower>> Create(ze_context_handle_t context,
                                                              ze_device_handle_t device,
                                                              ze_command_list_handle_t list);
  ~ListFollower();  // forgets what waits for work that is not done
  ListFollower(const ListFollower&) = delete;
  ListFollower& operator=(const ListFollower&) = delete;

  // Call before each append to the list.
  void NoteAppend() { appended_ = true; }
  // Stores `value` at `word` (release order) when all earlier work of the list is done.
  absl::Status WriteValue(uint64_t* word, uint64_t value) { return AppendMark(word, value); }
  // Waits until all earlier work is done and all values are stored. Returns DeadlineExceeded if work remains
  // after `timeout_ns`.
  absl::Status Synchronize(uint64_t timeout_ns);
  // Whether waiting for the list failed: no more values will be stored.
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  absl::Status failure();

 private:
  // A point in the list's work that is reported by an event.
  struct Mark {
    ze_event_handle_t event;
    uint64_t* word;  // null: no value to store
    uint64_t value;
  };

  ListFollower(ze_context_handle_t context, ze_device_handle_t device, ze_command_list_handle_t list)
      : context_(context), device_(device), list_(list) {}
  absl::StatusOr<ze_event_handle_t> TakeEvent();
  absl::Status AppendMark(uint64_t* word, uint64_t value);
  void Main();
  // Returns NOT_READY if the follower ends before the event is signalled.
  ze_result_t WaitFor(ze_event_handle_t event);

  const ze_context_handle_t context_;
  const ze_device_handle_t device_;
  const ze_command_list_handle_t list_;
  std::vector<ze_event_pool_handle_t> pools_;
  std::vector<ze_event_handle_t> events_;  // all that were made of them
  bool appended_ = false;                  // since the last mark
  std::atomic<bool> has_failed_{false};

  Mutex mutex_;
  CondVar changed_;
  std::vector<ze_event_handle_t> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<Mark> marks_ ABSL_GUARDED_BY(mutex_);  // the first one stays until it is reached
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace xpud::executor
