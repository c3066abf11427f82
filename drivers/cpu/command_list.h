// Command lists of the CPU device. An immediate list runs a command on the appending thread if all earlier
// work is done and its events are signalled; otherwise its thread runs it, in order. A regular list stores
// commands for a queue. Lists are always in order. Kernels, graphs and queues of another device are refused.
#pragma once

#include <memory>

#include "drivers/cpu/command.h"
#include "drivers/cpu/command_thread.h"
#include "drivers/cpu/worker_pool.h"
#include "drivers/frontend/appending_list.h"

namespace xpud::drivers::cpu {

class CpuCommandList : public AppendingList<CpuCommandList, CpuEvent> {
 public:
  explicit CpuCommandList(CpuDevice& device) : AppendingList(device.driver()), device_(device) {}

  CpuDevice& device() const { return device_; }

  ze_result_t AppendLaunch(Kernel& kernel, const LaunchShape& shape, const Sync& sync) final;
  ze_result_t AppendLaunchIndirect(Kernel& kernel, const ze_group_count_t* groups, const Sync& sync) final;
  ze_result_t AppendLaunchMultiple(std::span<Kernel* const> kernels, const uint32_t* count,
                                   const ze_group_count_t* groups, const Sync& sync) final;
  ze_result_t AppendGraph(ExecutableGraph& graph, const Sync& sync) final;

 private:
  friend class AppendingList<CpuCommandList, CpuEvent>;
  template <typename Operation>
  ze_result_t Append(const Operation& operation, const Sync& sync) {
    WorkerPool* const pool = PoolIfReady(sync);
    if (pool == nullptr) [[unlikely]]
      return AppendKept(KeepCommand(operation, sync));
    RunAndSignal(operation, sync.signal == nullptr ? nullptr : &static_cast<CpuEvent*>(sync.signal)->state(),
                 *pool);
    return ZE_RESULT_SUCCESS;
  }
  ze_result_t AppendPart(const CpuKernel& kernel, const LaunchShape& shape, const Sync& sync);
  // Returns the pool if a command may run at once, or null if it must be stored.
  virtual WorkerPool* PoolIfReady(const Sync& sync) = 0;
  virtual ze_result_t AppendKept(std::unique_ptr<Command> command) = 0;

  CpuDevice& device_;
  WorkerPool::OpenLaunch open_launch_;
};

class ImmediateList final : public CpuCommandList {
 public:
  ImmediateList(std::shared_ptr<CommandThread> thread, bool synchronous)
      : CpuCommandList(thread->device()), thread_(std::move(thread)), synchronous_(synchronous) {}

  bool immediate() const override { return true; }
  ze_result_t Close() override { return ZE_RESULT_ERROR_INVALID_ARGUMENT; }
  ze_result_t Reset() override { return ZE_RESULT_ERROR_INVALID_ARGUMENT; }
  ze_result_t HostSynchronize(uint64_t timeout_ns) override { return thread_->Wait(timeout_ns); }
  ze_result_t BeginCapture() override;
  ze_result_t EndCapture(std::unique_ptr<Graph>& graph) override;

 private:
  WorkerPool* PoolIfReady(const Sync& sync) override;
  ze_result_t AppendKept(std::unique_ptr<Command> command) override;

  const std::shared_ptr<CommandThread> thread_;
  const bool synchronous_;
  std::shared_ptr<CommandSequence> captured_;  // null: not capturing
};

class RegularList final : public CpuCommandList {
 public:
  explicit RegularList(CpuDevice& device)
      : CpuCommandList(device), commands_(std::make_shared<CommandSequence>()) {}

  bool immediate() const override { return false; }
  ze_result_t Close() override;
  ze_result_t Reset() override;
  ze_result_t HostSynchronize(uint64_t) override { return ZE_RESULT_ERROR_INVALID_ARGUMENT; }
  ze_result_t BeginCapture() override { return ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE; }
  ze_result_t EndCapture(std::unique_ptr<Graph>&) override {
    return ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
  }

  bool closed() const { return closed_; }
  // The appended commands, shared with queues that still run them.
  const std::shared_ptr<CommandSequence>& commands() const { return commands_; }

 private:
  WorkerPool* PoolIfReady(const Sync&) override { return nullptr; }
  ze_result_t AppendKept(std::unique_ptr<Command> command) override;

  std::shared_ptr<CommandSequence> commands_;
  bool closed_ = false;
};

}  // namespace xpud::drivers::cpu
