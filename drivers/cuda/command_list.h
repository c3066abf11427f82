// Command lists of a CUDA device. An immediate list is a stream: appending enqueues, without a lock or an
// allocation. A regular list stores commands, and a queue enqueues them at each execution. Lists are always
// in order.
#pragma once

#include <memory>
#include <vector>

#include "drivers/cuda/command.h"
#include "drivers/cuda/stream.h"
#include "drivers/frontend/appending_list.h"

namespace xpud::drivers::cuda {

class CudaCommandList : public AppendingList<CudaCommandList, CudaEvent> {
 public:
  ze_result_t AppendLaunch(Kernel& kernel, const LaunchShape& shape, const Sync& sync) final;
  // CUDA has no launch with group counts in device memory, except in graphs.
  ze_result_t AppendLaunchIndirect(Kernel&, const ze_group_count_t*, const Sync&) final {
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  }
  ze_result_t AppendLaunchMultiple(std::span<Kernel* const>, const uint32_t*, const ze_group_count_t*,
                                   const Sync&) final {
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  }
  ze_result_t AppendGraph(ExecutableGraph& graph, const Sync& sync) final;

 protected:
  // `stream` is null for a regular list.
  CudaCommandList(const Driver* driver, const Stream* stream, bool synchronous)
      : AppendingList(driver), stream_(stream), synchronous_(synchronous) {}

 private:
  friend class AppendingList<CudaCommandList, CudaEvent>;
  template <typename Operation>
  ze_result_t Append(const Operation& operation, const Sync& sync) {
    if (stream_ != nullptr) [[likely]]
      return AppendNow(operation, sync);
    return AppendKept(KeepCommand(operation, sync));
  }
  template <typename Operation>
  ze_result_t AppendNow(const Operation& operation, const Sync& sync) {
    stream_->device().MakeCurrent();
    for (const Event* event : sync.waits) {
      const ze_result_t result = EnqueueWait(*stream_, static_cast<const CudaEvent*>(event)->state());
      if (result != ZE_RESULT_SUCCESS) return result;
    }
    const ze_result_t result = Enqueue(*stream_, operation, SignalOf(sync));
    const bool wait = synchronous_ && !stream_->capturing();
    return wait && result == ZE_RESULT_SUCCESS ? stream_->Wait(UINT64_MAX) : result;
  }
  virtual ze_result_t AppendKept(std::unique_ptr<Command> command) = 0;

  const Stream* const stream_;
  const bool synchronous_;
};

class ImmediateList final : public CudaCommandList {
 public:
  ImmediateList(const Driver* driver, std::shared_ptr<Stream> stream, bool synchronous)
      : CudaCommandList(driver, stream.get(), synchronous), stream_(std::move(stream)) {}

  bool immediate() const override { return true; }
  ze_result_t Close() override { return ZE_RESULT_ERROR_INVALID_ARGUMENT; }
  ze_result_t Reset() override { return ZE_RESULT_ERROR_INVALID_ARGUMENT; }
  ze_result_t HostSynchronize(uint64_t timeout_ns) override {
    return stream_->capturing() ? ZE_RESULT_ERROR_INVALID_ARGUMENT : stream_->Wait(timeout_ns);
  }
  ze_result_t BeginCapture() override { return stream_->BeginCapture(); }
  ze_result_t EndCapture(std::unique_ptr<Graph>& graph) override;
  ze_result_t CountCaptured(uint32_t& count) const override { return stream_->CountCaptured(count); }

 private:
  ze_result_t AppendKept(std::unique_ptr<Command>) override { return ZE_RESULT_ERROR_UNKNOWN; }

  const std::shared_ptr<Stream> stream_;
};

class RegularList final : public CudaCommandList {
 public:
  explicit RegularList(const Driver* driver) : CudaCommandList(driver, nullptr, false) {}

  bool immediate() const override { return false; }
  ze_result_t Close() override;
  ze_result_t Reset() override;
  ze_result_t HostSynchronize(uint64_t) override { return ZE_RESULT_ERROR_INVALID_ARGUMENT; }
  ze_result_t BeginCapture() override { return ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE; }
  ze_result_t EndCapture(std::unique_ptr<Graph>&) override {
    return ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
  }

  bool closed() const { return closed_; }
  // Enqueues all appended commands.
  ze_result_t Run(const Stream& stream) const;

 private:
  ze_result_t AppendKept(std::unique_ptr<Command> command) override;

  std::vector<std::unique_ptr<Command>> commands_;
  bool closed_ = false;
};

}  // namespace xpud::drivers::cuda
