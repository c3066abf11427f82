#include "drivers/cuda/driver.h"

#include <cstring>

#include "drivers/cuda/context.h"
#include "drivers/cuda/trace.h"
#include "drivers/frontend/entry.h"
#include "drivers/frontend/extensions.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers::cuda {
namespace {

// The frontend passes only handles of our driver. Returns null for any other, instead of failing.
const CudaDriver* FindOurs(ze_driver_handle_t handle) {
  return dynamic_cast<const CudaDriver*>(HandleTable::Find<Driver>(handle));
}

ze_result_t ImportExternalPointer(ze_driver_handle_t handle, void* pointer, size_t size) {
  const CudaDriver* const driver = FindOurs(handle);
  XPUD_REQUIRE(driver != nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  XPUD_NOT_NULL(pointer);
  XPUD_REQUIRE(size != 0, ZE_RESULT_ERROR_INVALID_SIZE);
  return driver->ImportPointer(pointer, size);
}

ze_result_t ReleaseImportedPointer(ze_driver_handle_t handle, void* pointer) {
  const CudaDriver* const driver = FindOurs(handle);
  XPUD_REQUIRE(driver != nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  XPUD_NOT_NULL(pointer);
  return driver->ReleasePointer(pointer);
}

ze_result_t DriverStartTrace(ze_driver_handle_t handle, xpud_pfnTraceReport_t report, void* user) {
  XPUD_REQUIRE(FindOurs(handle) != nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  XPUD_NOT_NULL(report);
  return StartTrace(report, user);
}

ze_result_t DriverFlushTrace(ze_driver_handle_t handle) {
  XPUD_REQUIRE(FindOurs(handle) != nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return FlushTrace();
}

ze_result_t DriverStopTrace(ze_driver_handle_t handle) {
  XPUD_REQUIRE(FindOurs(handle) != nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return StopTrace();
}

const NamedFunction kFunctions[] = {
    {"zexDriverImportExternalPointer", reinterpret_cast<void*>(&ImportExternalPointer)},
    {"zexDriverReleaseImportedPointer", reinterpret_cast<void*>(&ReleaseImportedPointer)},
    {"xpudDriverStartTrace", reinterpret_cast<void*>(&DriverStartTrace)},
    {"xpudDriverFlushTrace", reinterpret_cast<void*>(&DriverFlushTrace)},
    {"xpudDriverStopTrace", reinterpret_cast<void*>(&DriverStopTrace)},
    {"xpudSetTraceTag", reinterpret_cast<void*>(&SetTraceTag)},
};

static_assert(std::is_same_v<decltype(&DriverStartTrace), xpud_pfnStartTrace_t>);
static_assert(std::is_same_v<decltype(&DriverFlushTrace), xpud_pfnFlushTrace_t>);
static_assert(std::is_same_v<decltype(&DriverStopTrace), xpud_pfnStopTrace_t>);
static_assert(std::is_same_v<decltype(&SetTraceTag), xpud_pfnSetTraceTag_t>);
static_assert(std::is_same_v<decltype(&ImportExternalPointer), xpud_pfnImportExternalPointer_t>);
static_assert(std::is_same_v<decltype(&ReleaseImportedPointer), xpud_pfnReleaseImportedPointer_t>);

}  // namespace

std::unique_ptr<CudaDriver> CudaDriver::Create(std::string& reason) {
  const int count = LoadCuda(CudaLibraryName(), cu, reason);
  std::unique_ptr<CudaDriver> driver(new CudaDriver);
  for (int i = 0; i < count; ++i) {
    if (auto device = CudaDevice::Open(driver.get(), i, reason)) {
      driver->cuda_devices_.push_back(device.get());
      driver->devices_.push_back(device.release());
    }
  }
  return driver->devices_.empty() ? nullptr : std::move(driver);
}

void CudaDriver::GetProperties(ze_driver_properties_t& properties) const {
  std::memset(&properties.uuid, 0, sizeof(properties.uuid));
  std::memcpy(properties.uuid.id, "xpud-cuda-drv", 13);
  properties.driverVersion = 1;
}

void* CudaDriver::FindExtensionFunction(const char* name) const { return Find(kFunctions, name); }

ze_result_t CudaDriver::CreateContext(const ze_context_desc_t&, std::unique_ptr<Context>& context) {
  if (cuda_devices_.size() == 1) {
    const ze_result_t result = cuda_devices_.front()->Activate();
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  context = std::make_unique<CudaContext>(this, cuda_devices_);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaDriver::ImportPointer(void* pointer, size_t size) const {
  CudaDevice* device = nullptr;
  const ze_result_t result = AnyActive(cuda_devices_, device);
  if (result != ZE_RESULT_SUCCESS) return result;
  for (const CudaDevice* each : cuda_devices_) {
    if (!each->MapsHostAddresses()) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  }
  device->MakeCurrent();
  return device->Check(
      cu.cuMemHostRegister(pointer, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
}

ze_result_t CudaDriver::ReleasePointer(void* pointer) const {
  CudaDevice* device = nullptr;
  const ze_result_t result = AnyActive(cuda_devices_, device);
  if (result != ZE_RESULT_SUCCESS) return result;
  device->MakeCurrent();
  return device->Check(cu.cuMemHostUnregister(pointer));
}

}  // namespace xpud::drivers::cuda
