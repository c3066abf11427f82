// A queue that is a Level Zero immediate list of this process.
#pragma once

#include <level_zero/ze_api.h>

#include <utility>

#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/level_zero/level_zero_device.h"
#include "daemon/executor/level_zero/list_follower.h"
#include "daemon/executor/level_zero/recorded_commands.h"

namespace xpud::executor {

class LevelZeroQueue final : public DeviceQueue {
 public:
  // `in_order`: the list runs its appends in order; otherwise a barrier precedes each append. Open comes
  // first. `owner`: see LevelZeroDevice::CreateList.
  LevelZeroQueue(LevelZeroDevice& device, ze_command_list_handle_t list, bool in_order, uint64_t owner);
  ~LevelZeroQueue() override;
  LevelZeroQueue(const LevelZeroQueue&) = delete;
  LevelZeroQueue& operator=(const LevelZeroQueue&) = delete;

  absl::Status Open();

  absl::Status Launch(const kernels::LaunchList& launches, std::span<const MemoryUse> uses) override;
  absl::StatusOr<bool> LaunchFor(const kernels::LaunchList& launches, std::span<const MemoryUse> uses,
                                 uint64_t nanoseconds, absl::FunctionRef<bool()> goes_on) override;
  absl::Status Copy(void* target, const void* source, uint64_t bytes) override;
  absl::Status Upload(void* target, std::span<const std::byte> source) override;
  void EndStopped() override;
  bool is_lost() const override { return judged_; }
  uint64_t TakeHelpedNs() override { return std::exchange(helped_ns_, 0); }
  absl::Status WriteValue(uint64_t* word, uint64_t value) override;
  absl::Status WriteTimestamp(uint64_t* word) override;

  // REQUIRES: device.records(). Launches between BeginRecording and EndRecording are recorded instead of
  // appended. EndRecording always ends the recording, and replaces `recorded`; that is cheaper the more alike
  // the two are.
  absl::Status BeginRecording();
  absl::StatusOr<RecordedCommands> EndRecording();
  // How many operations of the device were recorded since BeginRecording.
  absl::StatusOr<uint32_t> CountRecorded() const;
  void DiscardRecording();  // instead of EndRecording
  absl::Status Replay(const RecordedCommands& recorded);

  // Waits at most `timeout_ns`. Returns DeadlineExceeded if work remains.
  absl::Status Synchronize(uint64_t timeout_ns);
  // Runs a HOST kernel whose last argument points at its result. Work that it enqueues is discarded.
  absl::StatusOr<uint64_t> RunHostKernel(const kernels::Kernel& kernel, std::span<const void*> arguments);
  absl::Status LaunchKernel(const kernels::Kernel& kernel, const std::array<uint32_t, 3>& groups,
                            const std::array<uint32_t, 3>& group_size, const void* const* arguments,
                            const void* part = nullptr);
  // Adds the verdict on the queue's owner, once, if its work cannot be followed any more.
  void TakeVerdict(std::vector<Verdict>& verdicts);
  // Whether LaunchFor stopped within launches that include this kernel.
  bool Needs(const kernels::Kernel& kernel) const;

 private:
  absl::Status Order();  // orders the next append after earlier ones
  // A launch by the functions that every driver has.
  absl::Status LaunchPlain(const LevelZeroDevice::LoadedKernel& kernel, const std::array<uint32_t, 3>& groups,
                           const std::array<uint32_t, 3>& group_size, const void* const* arguments);

  LevelZeroDevice& device_;
  const ze_command_list_handle_t list_;
  ze_command_list_handle_t raw_list_ = nullptr;  // the driver's own handle; null before Open
  const bool in_order_;
  const uint64_t owner_;
  bool judged_ = false;                     // TakeVerdict gave a verdict
  std::unique_ptr<ListFollower> follower_;  // null: the driver has functions for it
  // Where LaunchFor stopped: these launches (null: it did not stop), the index of the launch, and its first
  // group that has not run.
  const kernels::LaunchList* stopped_ = nullptr;
  size_t launch_ = 0;
  uint64_t group_ = 0;
  uint64_t helped_ns_ = 0;
};

}  // namespace xpud::executor
