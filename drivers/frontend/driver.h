// Interfaces that a back end implements first: a driver and its devices. Created once by CreateDrivers and
// never destroyed. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drivers/frontend/object.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {

class Context;
class Sensors;

class Device : public Object {
 public:
  using Object::Object;
  using Handle = ze_device_handle_t;
  static constexpr Kind kKind = Kind::kDevice;

  // Each function fills every field except stype (it may select units) and pNext.
  virtual void GetProperties(ze_device_properties_t& properties) const = 0;
  virtual void GetComputeProperties(ze_device_compute_properties_t& properties) const = 0;
  virtual void GetModuleProperties(ze_device_module_properties_t& properties) const = 0;
  virtual void GetMemoryAccessProperties(ze_device_memory_access_properties_t& properties) const = 0;
  virtual void GetImageProperties(ze_device_image_properties_t& properties) const = 0;
  virtual void GetExternalMemoryProperties(ze_device_external_memory_properties_t& properties) const = 0;
  // One element for each queue group, memory and cache of the device.
  virtual std::vector<ze_command_queue_group_properties_t> QueueGroups() const = 0;
  virtual std::vector<ze_device_memory_properties_t> Memories() const = 0;
  virtual std::vector<ze_device_cache_properties_t> Caches() const = 0;
  virtual ze_result_t GetStatus() const = 0;
  virtual void GetGlobalTimestamps(uint64_t& host, uint64_t& device) const = 0;
  virtual xpud_peak_rates_t PeakRates() const = 0;
  // Returns UNSUPPORTED_FEATURE if the device is not on PCI.
  virtual ze_result_t GetPciProperties(ze_pci_ext_properties_t& /*properties*/) const {
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  }
  virtual bool CanAccessPeer(const Device& peer) const = 0;
  // Null if the device has no sensors.
  virtual const Sensors* sensors() const { return nullptr; }
};

class Driver : public Object {
 public:
  Driver() : Object(this) {}
  using Handle = ze_driver_handle_t;
  static constexpr Kind kKind = Kind::kDriver;

  virtual const xpud_back_end_t& BackEnd() const = 0;
  virtual void GetProperties(ze_driver_properties_t& properties) const = 0;
  virtual void GetIpcProperties(ze_driver_ipc_properties_t& properties) const = 0;
  virtual std::span<Device* const> Devices() const = 0;
  // Whether it has the extensions of proto/base/ze_ext.h, beyond xpudDriverGetBackEnd; otherwise it is a
  // driver of API 1.3.
  virtual bool HasExtensions() const { return true; }
  // Whether it lists ZE_extension_pci_properties: its devices are on PCI.
  virtual bool HasPciProperties() const { return false; }
  // Returns a function that only this back end offers, or null.
  virtual void* FindExtensionFunction(const char*) const { return nullptr; }
  virtual ze_result_t CreateContext(const ze_context_desc_t& desc, std::unique_ptr<Context>& context) = 0;
};

// Creates a driver for each back end that finds a device (drivers/back_ends.cc). `report` receives one line,
// with the reason, for each back end that found none.
std::vector<std::unique_ptr<Driver>> CreateDrivers(std::string& report);

}  // namespace xpud::drivers
