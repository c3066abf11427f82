// A device whose driver this process calls. Owns the Level Zero context and all handles made from it.
#pragma once

#include <level_zero/ze_api.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/executor/api/address_space.h"
#include "daemon/executor/api/background.h"
#include "daemon/executor/api/chunk_mover.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/level_zero/blocking_list.h"
#include "kernels/library/host_modules.h"
#include "proto/base/unique_fd.h"
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

  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<Chunk>> ReserveChunk(uint64_t bytes) override;
  Mover* mover() override { return mover_.get(); }  // null without SetWake
  absl::StatusOr<UniqueFd> ExportMemory(const Chunk& chunk) override;
  absl::StatusOr<std::unique_ptr<Chunk>> MapPeer(const UniqueFd& memory, uint64_t bytes) override;
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
  // AllocateChunk chooses addresses for its chunks from here on, if the driver has virtual memory. In the
  // daemon's process only; an executor gets the addresses.
  absl::Status ChooseAddresses();
  // `owner`: the session that is closed if the list's work takes the device down.
  absl::StatusOr<std::unique_ptr<LevelZeroQueue>> CreateList(PriorityClass priority, uint64_t owner = 0);
  // Opens the same device once more, for another thread.
  absl::StatusOr<std::unique_ptr<LevelZeroDevice>> OpenAgain() const;

  // Whether its memory can be shared between processes; Unimplemented if the driver cannot.
  absl::Status CheckShares() const;
  // Allocates memory at exactly `address`, and returns an fd that other processes can import.
  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunkAt(void* address, uint64_t bytes, UniqueFd& fd);
  // Maps memory of another process at exactly `address`.
  absl::StatusOr<std::unique_ptr<Chunk>> ImportChunkAt(void* address, uint64_t bytes, const UniqueFd& fd);
  // Keeps addresses for memory that ReturnNew or ReturnImported brings.
  absl::StatusOr<std::unique_ptr<Chunk>> ReserveChunkAt(void* address, uint64_t bytes);
  // Bring memory, as AllocateChunkAt and ImportChunkAt do, to a chunk of this device, in place of what it
  // has.
  absl::Status ReturnNew(Chunk& chunk, UniqueFd& fd);
  absl::Status ReturnImported(Chunk& chunk, const UniqueFd& fd);
  // Whether chunks can be reserved, and brought and taken away; otherwise these functions are Unimplemented.
  bool moves_chunks() const { return virtual_memory_; }
  // Takes a chunk's memory away, if there is any. If that fails, it is still there.
  absl::Status TakeAway(Chunk& chunk);
  // A list for copies by another thread, which may change chunks by the functions above, too: each thread its
  // own. Thread-safe.
  absl::StatusOr<std::unique_ptr<BlockingList>> CreateBlockingList() const;
  // Copies between a part of a chunk, which must be there, and host memory that the device knows.
  // Thread-safe.
  enum class Way { kOut, kIn };
  absl::Status CopyPiece(BlockingList& list, Way way, const Chunk& chunk, uint64_t offset, std::byte* host,
                         uint64_t bytes) const;
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
  class ReservedChunk;
  class OwnTransfers;
  class LeaveTransfer;
  class ReturnTransfer;
  // Null if the driver lacks them. Of a group, the first one is found last, so it says whether all are there.
  struct Functions {
    xpud_pfnAppendLaunchKernelWithArguments_t launch = nullptr;
    xpud_pfnCommandListHostSynchronize_t synchronize = nullptr;
    xpud_pfnAppendWriteValue64_t write_value = nullptr;
    xpud_pfnModuleCreate_t create_module = nullptr;
    xpud_pfnImportExternalPointer_t import_pointer = nullptr;
    xpud_pfnReleaseImportedPointer_t release_pointer = nullptr;
    xpud_pfnBeginGraphCapture_t begin_capture = nullptr;
    xpud_pfnEndGraphCapture_t end_capture = nullptr;
    xpud_pfnInstantiateGraph_t instantiate = nullptr;
    xpud_pfnAppendGraph_t append_graph = nullptr;
    xpud_pfnGraphDestroy_t destroy_graph = nullptr;
    xpud_pfnExecutableGraphDestroy_t destroy_executable = nullptr;
    xpud_pfnStartTrace_t start_trace = nullptr;
    xpud_pfnFlushTrace_t flush_trace = nullptr;
    xpud_pfnStopTrace_t stop_trace = nullptr;
    xpud_pfnSetTraceTag_t set_trace_tag = nullptr;
    xpud_pfnCountCaptured_t count_captured = nullptr;
  };
  struct LoadedModule {
    const kernels::ModuleImage* image;
    ze_module_handle_t handle;
  };

  LevelZeroDevice() = default;
  absl::Status ReadProperties();
  void ReadPciAddress();
  absl::Status FindFunctions();
  absl::Status FindImportFunctions();
  absl::Status FindGraphFunctions();
  absl::Status FindTraceFunctions();
  absl::Status FindVirtualMemory();
  // With virtual memory.
  absl::StatusOr<std::unique_ptr<ReservedChunk>> Reserve(void* start, uint64_t bytes);
  absl::StatusOr<std::unique_ptr<ReservedChunk>> ReserveAt(void* address, uint64_t bytes);
  absl::StatusOr<std::unique_ptr<ReservedChunk>> ReserveAnywhere(uint64_t bytes);
  // Without it.
  absl::StatusOr<std::unique_ptr<Chunk>> Allocate(const void* chain, uint64_t bytes);
  absl::StatusOr<std::unique_ptr<Chunk>> AllocateAt(void* address, const void* chain, uint64_t bytes);
  // New memory of this device, which is zero.
  absl::Status Fill(ReservedChunk& chunk) const;
  absl::Status ExportChunk(const Chunk& chunk, UniqueFd& fd) const;
  absl::Status Clear(const Chunk& chunk) const;
  absl::StatusOr<BlockingList*> MoverList(uint32_t thread);  // on that thread of the mover
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
  Functions functions_;
  bool takes_pageable_ = false;            // see xpud_back_end_t
  bool exports_ = false;                   // memory, as an fd
  bool virtual_memory_ = false;            // the driver has it
  std::optional<AddressSpace> addresses_;  // see ChooseAddresses
  std::vector<LoadedKernel> kernels_;      // by Kernel::index
  std::vector<LoadedModule> modules_;
  std::vector<LevelZeroQueue*> queues_;
  std::unique_ptr<Background> background_;
  // Each belongs to a thread of the mover, which makes it; null: it has not.
  std::array<std::unique_ptr<BlockingList>, ChunkMover::kThreads> mover_lists_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<ChunkMover> mover_;
};

}  // namespace xpud::executor
