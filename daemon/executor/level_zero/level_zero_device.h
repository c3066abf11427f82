// A device whose driver this process calls. Owns the Level Zero context and all handles made from it.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/executor/api/background.h"
#include "daemon/executor/api/chunk_mover.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/level_zero/driver_functions.h"
#include "daemon/executor/level_zero/level_zero_memory.h"
#include "daemon/executor/level_zero/level_zero_transfers.h"
#include "kernels/library/host_modules.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor {

class LevelZeroQueue;

class LevelZeroDevice final : public Device {
 public:
  // `asynchronous`: treat the device as asynchronous whatever it is (tests).
  static absl::StatusOr<std::unique_ptr<LevelZeroDevice>> Open(ze_driver_handle_t driver,
                                                               ze_device_handle_t device, bool asynchronous);
  ~LevelZeroDevice() override;
  LevelZeroDevice(const LevelZeroDevice&) = delete;
  LevelZeroDevice& operator=(const LevelZeroDevice&) = delete;

  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes) override {
    return memory_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Chunk>> ReserveChunk(uint64_t bytes) override {
    return memory_->Reserve(bytes);
  }
  Mover* mover() override { return mover_.get(); }  // null without SetWake
  absl::StatusOr<UniqueFd> ExportMemory(const Chunk& chunk) override { return memory_->Export(chunk); }
  absl::StatusOr<std::unique_ptr<Chunk>> MapPeer(const UniqueFd& memory, uint64_t bytes) override {
    return memory_->MapPeer(memory, bytes);
  }
  // Whether MapPeer takes memory of `other`, another device of the same process.
  bool CanMap(const LevelZeroDevice& other) const;
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<HostMemory>> Import(const transport::SharedBytes& memory) override;
  void StartImport(const transport::SharedBytes& memory, uint64_t owner, ImportDone done) override;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(PriorityClass priority, uint64_t owner) override;
  absl::StatusOr<std::string> Assemble(const std::string& text) override;
  absl::StatusOr<uint64_t> RunHostKernel(const kernels::Launch& launch) override;
  void Forget(std::vector<const kernels::Kernel*>& kernels) override;
  SensorReadings ReadSensors() override;  // thread-safe
  std::vector<Verdict> Poll() override;
  // Sets a function that is called on any thread when Poll has something to do. Call before StartImport and
  // mover.
  void SetWake(std::function<void()> wake);
  // `owner`: the session that is closed if the list's work takes the device down.
  absl::StatusOr<std::unique_ptr<LevelZeroQueue>> CreateList(PriorityClass priority, uint64_t owner = 0);
  // Opens the same device once more, for another thread.
  absl::StatusOr<std::unique_ptr<LevelZeroDevice>> OpenAgain() const;

  // What it has its chunks from.
  LevelZeroMemory& memory() { return *memory_; }

  // Whether queues can record commands.
  bool records() const { return functions_.begin_capture != nullptr; }
  // Whether the driver says when work ran; see proto/base/ze_ext.h. One device of the process at a time.
  bool traces() const { return functions_.start_trace != nullptr; }
  absl::Status StartTrace(xpud_pfnTraceReport_t report, void* user);
  absl::Status FlushTrace();
  absl::Status StopTrace();
  // REQUIRES: traces().
  void SetTraceTag(uint64_t tag) const { functions_.set_trace_tag(tag); }
  struct LoadedKernel {
    ze_kernel_handle_t handle = nullptr;               // null if the kernel is not loaded
    ze_kernel_handle_t raw = nullptr;                  // the driver's own handle
    std::vector<kernels::KernelArgument> arguments{};  // if launches need them
  };
  // The first call loads the kernel; later calls look it up by kernel.index. The result is valid until the
  // next call.
  absl::StatusOr<const LoadedKernel*> Load(const kernels::Kernel& kernel);
  // REQUIRES: the kernel is alone in its module and is not in flight.
  void Unload(const kernels::Kernel& kernel);

 private:
  friend class LevelZeroQueue;
  class ImportedMemory;
  struct LoadedModule {
    const kernels::ModuleImage* image;
    ze_module_handle_t handle;
  };

  LevelZeroDevice() = default;
  absl::Status ReadProperties();
  void ReadPciAddress();
  absl::StatusOr<std::unique_ptr<LevelZeroMemory>> OpenMemory() const;
  absl::StatusOr<ze_module_handle_t> CreateModule(ze_module_format_t format, const void* input,
                                                  size_t bytes) const;
  absl::StatusOr<ze_module_handle_t> LoadModule(const kernels::ModuleImage& image);
  absl::Status Prepare(const kernels::Kernel& kernel, LoadedKernel& loaded) const;

  ze_driver_handle_t driver_ = nullptr;
  ze_device_handle_t device_ = nullptr;
  ze_context_handle_t context_ = nullptr;
  // The driver's own handles, for functions that were found by name.
  ze_driver_handle_t raw_driver_ = nullptr;
  ze_device_handle_t raw_device_ = nullptr;
  DriverFunctions functions_;
  bool takes_pageable_ = false;  // see xpud_back_end_t
  std::unique_ptr<LevelZeroMemory> memory_;
  std::vector<LoadedKernel> kernels_;  // by Kernel::index
  std::vector<LoadedModule> modules_;
  std::vector<LevelZeroQueue*> queues_;
  std::unique_ptr<Background> background_;
  std::unique_ptr<LevelZeroTransfers> transfers_;
  std::unique_ptr<ChunkMover> mover_;
};

}  // namespace xpud::executor
