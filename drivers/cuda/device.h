// An NVIDIA GPU as a Level Zero device. Its primary context, which takes time and memory, is retained when
// first needed and never released. Lives as long as the process. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drivers/cuda/builtin_kernels.h"
#include "drivers/cuda/cuda_library.h"
#include "drivers/cuda/result.h"
#include "drivers/frontend/driver.h"
#include "drivers/frontend/sensors.h"
#include "proto/base/mutex.h"

namespace xpud::drivers::cuda {

// The context that MakeCurrent last set on this thread. Code that runs on our threads (HOST kernels) must
// restore the thread's context.
inline constinit thread_local CUcontext current_context = nullptr;

struct Code;

// The code of PTX that was loaded as it is, for later modules of the same text: CUDA would compile it again.
// Thread-safe.
class LoadedText {
 public:
  // Returns null if the module's text is not here.
  std::shared_ptr<const Code> Find(const ze_module_desc_t& desc) ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps the last few.
  void Keep(std::shared_ptr<const Code> code) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::deque<std::shared_ptr<const Code>> kept_ ABSL_GUARDED_BY(mutex_);
};

class CudaDevice final : public Device {
 public:
  // Returns null, with a reason, for a GPU without a feature that we need.
  static std::unique_ptr<CudaDevice> Open(const Driver* driver, int ordinal, std::string& reason);

  CUdevice device() const { return device_; }
  uint64_t memory() const { return memory_; }
  uint32_t multiprocessors() const { return Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT); }
  uint32_t queues() const { return 32; }

  // Retains the primary context and loads the built-in kernels, once. Required before the functions below.
  // Returns DEVICE_LOST if that is known, because some of CUDA's calls succeed on a lost device.
  ze_result_t Activate() ABSL_LOCKS_EXCLUDED(mutex_);
  bool active() const { return active_.load(std::memory_order_acquire); }
  CUcontext context() const { return context_; }
  const BuiltinKernels& builtins() const { return builtins_; }
  LoadedText& loaded_text() { return loaded_text_; }
  // Makes the context current on the calling thread. An error appears in the next call.
  void MakeCurrent() const {
    if (current_context == context_) [[likely]]
      return;
    if (cu.cuCtxSetCurrent(context_) == CUDA_SUCCESS) current_context = context_;
  }
  // Converts a result for the application, and remembers if the device is lost.
  ze_result_t Check(CUresult result) const {
    return result == CUDA_SUCCESS ? ZE_RESULT_SUCCESS : CheckFailed(result);
  }
  // Whether a call has found the device lost.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  // Asks the device. Returns SUCCESS unless it is lost.
  ze_result_t Probe() const;
  // Whether registered host memory has the same address on host and device.
  bool MapsHostAddresses() const {
    return Attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0;
  }
  // Returns CUDA's priority for a Level Zero priority.
  int StreamPriority(ze_command_queue_priority_t priority) const;

  void GetProperties(ze_device_properties_t& properties) const override;
  void GetComputeProperties(ze_device_compute_properties_t& properties) const override;
  void GetModuleProperties(ze_device_module_properties_t& properties) const override;
  void GetMemoryAccessProperties(ze_device_memory_access_properties_t& properties) const override;
  void GetImageProperties(ze_device_image_properties_t& properties) const override;
  void GetExternalMemoryProperties(ze_device_external_memory_properties_t& properties) const override;
  std::vector<ze_command_queue_group_properties_t> QueueGroups() const override;
  std::vector<ze_device_memory_properties_t> Memories() const override;
  std::vector<ze_device_cache_properties_t> Caches() const override;
  ze_result_t GetStatus() const override;
  void GetGlobalTimestamps(uint64_t& host, uint64_t& device) const override;
  xpud_peak_rates_t PeakRates() const override;
  ze_result_t GetPciProperties(ze_pci_ext_properties_t& properties) const override;
  // Copies and kernels access memory of a peer that was imported and mapped for this device.
  bool CanAccessPeer(const Device& peer) const override;
  // NVML's sensors, opened at the first use.
  const Sensors* sensors() const override;

 private:
  CudaDevice(const Driver* driver, CUdevice device, uint64_t memory)
      : Device(driver), device_(device), memory_(memory) {}
  uint32_t Attribute(CUdevice_attribute attribute) const;
  ze_result_t CheckFailed(CUresult result) const;
  CUresult ActivateLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CUdevice device_;
  const uint64_t memory_;
  mutable std::atomic<bool> lost_{false};
  std::atomic<bool> active_{false};
  // Written before active_, constant then.
  CUcontext context_ = nullptr;
  BuiltinKernels builtins_;
  CUstream utility_ = nullptr;  // for clock readings and probes
  int least_priority_ = 0;
  int greatest_priority_ = 0;
  uint64_t* clock_ = nullptr;  // pinned
  mutable std::once_flag sensors_once_;
  mutable std::unique_ptr<const Sensors> sensors_;
  mutable Mutex mutex_;     // activation, and the clock's reading
  LoadedText loaded_text_;  // last: its code refers to this device
};

}  // namespace xpud::drivers::cuda
