#include "daemon/executor/level_zero/level_zero_queue.h"

#include "daemon/executor/level_zero/raw_handle.h"
#include "daemon/executor/level_zero/ze_status.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {
namespace {

constexpr uint64_t kMaxEndNs = 10'000'000'000;

int GoesOn(const void* context) { return (*static_cast<const absl::FunctionRef<bool()>*>(context))(); }

}  // namespace

LevelZeroQueue::LevelZeroQueue(LevelZeroDevice& device, ze_command_list_handle_t list, bool in_order,
                               uint64_t owner)
    : device_(device), list_(list), in_order_(in_order), owner_(owner) {
  device_.queues_.push_back(this);
}

absl::Status LevelZeroQueue::Open() {
  ASSIGN_OR_RETURN(ze_command_list_handle_t raw, Raw(ZEL_HANDLE_COMMAND_LIST, list_));
  if (device_.functions_.write_value == nullptr || device_.functions_.synchronize == nullptr) {
    ASSIGN_OR_RETURN(follower_, ListFollower::Create(device_.context_, device_.device_, list_));
  }
  raw_list_ = raw;
  return absl::OkStatus();
}

LevelZeroQueue::~LevelZeroQueue() {
  std::erase(device_.queues_, this);
  if (raw_list_ != nullptr) (void)Synchronize(kMaxEndNs);  // a list that does not end means a lost device
  follower_.reset();
  zeCommandListDestroy(list_);
}

absl::Status LevelZeroQueue::Order() {
  if (follower_ != nullptr) follower_->NoteAppend();
  if (!in_order_) RETURN_IF_ZE_ERROR(zeCommandListAppendBarrier(list_, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status LevelZeroQueue::LaunchKernel(const kernels::Kernel& kernel,
                                          const std::array<uint32_t, 3>& groups,
                                          const std::array<uint32_t, 3>& group_size,
                                          const void* const* arguments, const void* part) {
  ASSIGN_OR_RETURN(const LevelZeroDevice::LoadedKernel* const loaded, device_.Load(kernel));
  RETURN_IF_ERROR(Order());
  const auto launch = device_.functions_.launch;
  if (launch == nullptr) return LaunchPlain(*loaded, groups, group_size, arguments);
  RETURN_IF_ZE_ERROR(launch(raw_list_, loaded->raw, {groups[0], groups[1], groups[2]},
                            {group_size[0], group_size[1], group_size[2]}, arguments, part, nullptr, 0,
                            nullptr));
  return absl::OkStatus();
}

absl::Status LevelZeroQueue::LaunchPlain(const LevelZeroDevice::LoadedKernel& kernel,
                                         const std::array<uint32_t, 3>& groups,
                                         const std::array<uint32_t, 3>& group_size,
                                         const void* const* arguments) {
  RETURN_IF_ZE_ERROR(zeKernelSetGroupSize(kernel.handle, group_size[0], group_size[1], group_size[2]));
  for (uint32_t i = 0; i < kernel.arguments.size(); ++i) {
    const auto [bytes, is_pointer] = kernel.arguments[i];
    // A null pointer is given as no value: some drivers refuse a value that is not the address of an
    // allocation.
    const bool is_null = is_pointer && *static_cast<void* const*>(arguments[i]) == nullptr;
    RETURN_IF_ZE_ERROR(zeKernelSetArgumentValue(kernel.handle, i, bytes, is_null ? nullptr : arguments[i]));
  }
  const ze_group_count_t counts = {groups[0], groups[1], groups[2]};
  RETURN_IF_ZE_ERROR(zeCommandListAppendLaunchKernel(list_, kernel.handle, &counts, nullptr, 0, nullptr));
  return absl::OkStatus();
}

void LevelZeroQueue::TakeVerdict(std::vector<Verdict>& verdicts) {
  if (follower_ == nullptr || !follower_->has_failed() || judged_) return;
  judged_ = true;
  verdicts.push_back({owner_, std::string(follower_->failure().message())});
}

absl::Status LevelZeroQueue::Launch(const kernels::LaunchList& launches, std::span<const MemoryUse>) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const kernels::Launch& launch = launches[i];
    RETURN_IF_ERROR(LaunchKernel(launch.kernel(), launch.groups(), launch.group_size, launch.arguments()));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LevelZeroQueue::LaunchFor(const kernels::LaunchList& launches,
                                               std::span<const MemoryUse> uses, uint64_t nanoseconds,
                                               absl::FunctionRef<bool()> goes_on) {
  if (!device_.properties().synchronous || device_.functions_.launch == nullptr)
    return DeviceQueue::LaunchFor(launches, uses, nanoseconds, goes_on);
  if (stopped_ == nullptr) launch_ = group_ = 0;
  stopped_ = nullptr;
  uint64_t now = 0, end = 0;  // 0: the clock was not read
  while (launch_ < launches.size()) {
    const kernels::Launch& launch = launches[launch_];
    const auto& [x, y, z] = launch.groups();
    const uint64_t groups = uint64_t{x} * y * z;
    const bool is_last = launch_ + 1 == launches.size();
    if (end == 0 && !(groups == 1 && is_last)) end = (now = NowNs()) + nanoseconds;
    const xpud_launch_part_desc_t part = {.stype = XPUD_STRUCTURE_TYPE_LAUNCH_PART_DESC,
                                          .pNext = nullptr,
                                          .nanoseconds = end - now,
                                          .next_group = &group_,
                                          .goes_on = &GoesOn,
                                          .context = &goes_on,
                                          .helped_ns = &helped_ns_,
                                          .ends = 0};
    RETURN_IF_ERROR(LaunchKernel(launch.kernel(), launch.groups(), launch.group_size, launch.arguments(),
                                 groups == 1 ? nullptr : &part));
    if (groups == 1 || group_ == groups) {
      ++launch_;
      group_ = 0;
      if (is_last) return true;
    }
    now = NowNs();
    if (group_ == 0 && now < end) continue;
    if (group_ == 0 && goes_on()) {
      end = now + nanoseconds;
      continue;
    }
    stopped_ = &launches;
    return false;
  }
  return true;
}

void LevelZeroQueue::EndStopped() {
  if (stopped_ == nullptr) return;
  const kernels::Launch& launch = (*stopped_)[launch_];
  stopped_ = nullptr;
  xpud_launch_part_desc_t part = {};
  part.stype = XPUD_STRUCTURE_TYPE_LAUNCH_PART_DESC;
  part.next_group = &group_;
  part.ends = 1;
  (void)LaunchKernel(launch.kernel(), launch.groups(), launch.group_size, launch.arguments(), &part);
}

bool LevelZeroQueue::Needs(const kernels::Kernel& kernel) const {
  for (size_t i = 0; stopped_ != nullptr && i < stopped_->size(); ++i) {
    if (&(*stopped_)[i].kernel() == &kernel) return true;
  }
  return false;
}

absl::Status LevelZeroQueue::Copy(void* target, const void* source, uint64_t bytes) {
  RETURN_IF_ERROR(Order());
  RETURN_IF_ZE_ERROR(zeCommandListAppendMemoryCopy(list_, target, source, bytes, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status LevelZeroQueue::Upload(void* target, std::span<const std::byte> source) {
  RETURN_IF_ERROR(Copy(target, source.data(), source.size()));
  return device_.takes_pageable_ ? absl::OkStatus() : Synchronize(UINT64_MAX);
}

absl::Status LevelZeroQueue::WriteValue(uint64_t* word, uint64_t value) {
  if (follower_ != nullptr) return follower_->WriteValue(word, value);
  RETURN_IF_ERROR(Order());
  RETURN_IF_ZE_ERROR(device_.functions_.write_value(raw_list_, word, value));
  return absl::OkStatus();
}

absl::Status LevelZeroQueue::WriteTimestamp(uint64_t* word) {
  RETURN_IF_ERROR(Order());
  RETURN_IF_ZE_ERROR(zeCommandListAppendWriteGlobalTimestamp(list_, word, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status LevelZeroQueue::BeginRecording() {
  RETURN_IF_ZE_ERROR(device_.functions_.begin_capture(raw_list_, nullptr));
  return absl::OkStatus();
}

absl::StatusOr<RecordedCommands> LevelZeroQueue::EndRecording() {
  const DriverFunctions& functions = device_.functions_;
  xpud_graph_handle_t graph = nullptr;
  RETURN_IF_ZE_ERROR(functions.end_capture(raw_list_, &graph, nullptr));
  xpud_executable_graph_handle_t executable = nullptr;
  const ze_result_t instantiated = functions.instantiate(graph, &executable, nullptr);
  functions.destroy_graph(graph);
  RETURN_IF_ZE_ERROR(instantiated);
  return RecordedCommands(executable, functions.destroy_executable);
}

absl::StatusOr<uint32_t> LevelZeroQueue::CountRecorded() const {
  uint32_t count = 0;
  if (device_.functions_.count_captured == nullptr)
    return absl::UnimplementedError("the driver cannot count");
  RETURN_IF_ZE_ERROR(device_.functions_.count_captured(raw_list_, &count));
  return count;
}

void LevelZeroQueue::DiscardRecording() {
  xpud_graph_handle_t graph = nullptr;
  if (device_.functions_.end_capture(raw_list_, &graph, nullptr) == ZE_RESULT_SUCCESS)
    device_.functions_.destroy_graph(graph);
}

absl::StatusOr<uint64_t> LevelZeroQueue::RunHostKernel(const kernels::Kernel& kernel,
                                                       std::span<const void*> arguments) {
  uint64_t result = 0;
  uint64_t* const answer = &result;
  arguments.back() = &answer;
  // On GPUs, HOST kernels run during the append, whether it is recorded or not.
  const bool record = device_.records() && device_.properties().kind == "gpu";
  if (record) RETURN_IF_ERROR(BeginRecording());
  const absl::Status asked = LaunchKernel(kernel, {1, 1, 1}, {1, 1, 1}, arguments.data());
  if (record) DiscardRecording();
  RETURN_IF_ERROR(asked);
  if (!record) RETURN_IF_ERROR(Synchronize(UINT64_MAX));
  return result;
}

absl::Status LevelZeroQueue::Replay(const RecordedCommands& recorded) {
  RETURN_IF_ERROR(Order());
  RETURN_IF_ZE_ERROR(
      device_.functions_.append_graph(raw_list_, recorded.handle_, nullptr, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status LevelZeroQueue::Synchronize(uint64_t timeout_ns) {
  if (follower_ != nullptr) return follower_->Synchronize(timeout_ns);
  RETURN_IF_ZE_ERROR(device_.functions_.synchronize(raw_list_, timeout_ns));
  return absl::OkStatus();
}

}  // namespace xpud::executor
