// The CPU as a Level Zero device, with the workers and memory that this process may use. Usually there is
// one; several (XPUD_CPU_DEVICES) have equal parts of both, and each its own workers. Lives as long as the
// process. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "drivers/cpu/cpu_info.h"
#include "drivers/cpu/sensors.h"
#include "drivers/cpu/worker_pool.h"
#include "drivers/frontend/driver.h"

namespace xpud::drivers::cpu {

class CpuDevice final : public Device {
 public:
  // Number `index` of `count` devices.
  CpuDevice(const Driver* driver, uint32_t index, uint32_t count);

  WorkerPool& pool() { return pool_; }
  uint64_t memory() const { return memory_; }
  // The number of queue indices; all queues are equal.
  uint32_t queues() const { return 4; }
  // Counts allocated bytes. Returns false if they would exceed the device's memory.
  bool Charge(uint64_t bytes);
  void Discharge(uint64_t bytes) { charged_.fetch_sub(bytes, std::memory_order_relaxed); }

  void GetProperties(ze_device_properties_t& properties) const override;
  void GetComputeProperties(ze_device_compute_properties_t& properties) const override;
  void GetModuleProperties(ze_device_module_properties_t& properties) const override;
  void GetMemoryAccessProperties(ze_device_memory_access_properties_t& properties) const override;
  void GetImageProperties(ze_device_image_properties_t& properties) const override;
  void GetExternalMemoryProperties(ze_device_external_memory_properties_t& properties) const override;
  std::vector<ze_command_queue_group_properties_t> QueueGroups() const override;
  std::vector<ze_device_memory_properties_t> Memories() const override;
  std::vector<ze_device_cache_properties_t> Caches() const override;
  ze_result_t GetStatus() const override { return ZE_RESULT_SUCCESS; }
  void GetGlobalTimestamps(uint64_t& host, uint64_t& device) const override;
  const Sensors* sensors() const override { return &sensors_; }
  xpud_peak_rates_t PeakRates() const override;
  ze_result_t GetPciProperties(ze_pci_ext_properties_t& properties) const override;
  bool CanAccessPeer(const Device& peer) const override { return peer.driver() == driver(); }

 private:
  const CpuInfo info_;
  const uint32_t index_;
  const CpuSensors sensors_{""};
  const uint64_t memory_;
  std::atomic<uint64_t> charged_{0};
  WorkerPool pool_;
};

}  // namespace xpud::drivers::cpu
