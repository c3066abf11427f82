#include "daemon/executor/level_zero/level_zero_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/back_end.h"
#include "daemon/executor/level_zero/level_zero_queue.h"
#include "daemon/executor/level_zero/level_zero_sensors.h"
#include "daemon/executor/level_zero/raw_handle.h"
#include "daemon/executor/level_zero/ze_status.h"
#include "kernels/library/host_modules.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {
namespace {

constexpr uint32_t kMaxExtensions = 1024;  // of a driver that are looked at

bool Lists(ze_driver_handle_t driver, std::string_view name) {
  uint32_t count = 0;
  if (zeDriverGetExtensionProperties(driver, &count, nullptr) != ZE_RESULT_SUCCESS) return false;
  std::vector<ze_driver_extension_properties_t> extensions(std::min(count, kMaxExtensions));
  count = static_cast<uint32_t>(extensions.size());
  if (zeDriverGetExtensionProperties(driver, &count, extensions.data()) != ZE_RESULT_SUCCESS) return false;
  return std::ranges::any_of(extensions, [&](const ze_driver_extension_properties_t& each) {
    return name == std::string_view(each.name, strnlen(each.name, sizeof(each.name)));
  });
}

ze_module_format_t FormatOf(kernels::ModuleImage::Format format) {
  switch (format) {
    case kernels::ModuleImage::Format::kHost:
      return XPUD_ZE_MODULE_FORMAT_HOST;
    case kernels::ModuleImage::Format::kSpirv:
      return ZE_MODULE_FORMAT_IL_SPIRV;
    case kernels::ModuleImage::Format::kNative:
    case kernels::ModuleImage::Format::kPtx:
      return ZE_MODULE_FORMAT_NATIVE;
  }
  return ZE_MODULE_FORMAT_NATIVE;
}

std::string TakeBuildLog(ze_module_build_log_handle_t log) {
  size_t bytes = 0;
  if (log == nullptr || zeModuleBuildLogGetString(log, &bytes, nullptr) != ZE_RESULT_SUCCESS || bytes == 0)
    return "";
  std::string text(bytes, '\0');
  zeModuleBuildLogGetString(log, &bytes, text.data());
  zeModuleBuildLogDestroy(log);
  return text.c_str();
}

class LevelZeroHostMemory final : public HostMemory {
 public:
  LevelZeroHostMemory(ze_context_handle_t context, std::byte* address)
      : HostMemory(address, address), context_(context) {}
  ~LevelZeroHostMemory() override { zeMemFree(context_, address()); }

 private:
  ze_context_handle_t context_;
};

// Says what the device lacks that compiled kernels of its target need.
absl::Status CheckRunsKernels(const DeviceProperties& properties,
                              const ze_device_compute_properties_t& compute) {
  if (properties.target != kernels::Target::kSpirv) return absl::OkStatus();
  const uint32_t threads = std::min(compute.maxTotalGroupSize, compute.maxGroupSizeX);
  if (threads < kernels::kGpuLanes) {
    return absl::UnimplementedError(absl::StrCat("device '", properties.name, "' runs groups of at most ",
                                                 threads, " threads; xpud's kernels have ",
                                                 kernels::kGpuLanes));
  }
  if (compute.maxSharedLocalMemory < kernels::kStaticLocalBytes) {
    return absl::UnimplementedError(
        absl::StrCat("device '", properties.name, "' has ", compute.maxSharedLocalMemory,
                     " bytes of local memory; xpud's kernels use up to ", kernels::kStaticLocalBytes));
  }
  return absl::OkStatus();
}

// Level Zero has three levels, for three classes.
ze_command_queue_priority_t PriorityOf(PriorityClass priority) {
  switch (priority) {
    case PriorityClass::kRealtime:
      return ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH;
    case PriorityClass::kInteractive:
      return ZE_COMMAND_QUEUE_PRIORITY_NORMAL;
    case PriorityClass::kBatch:
      break;
  }
  return ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW;
}

}  // namespace

// Imported memory has the same address on the device as in this process.
class LevelZeroDevice::ImportedMemory final : public HostMemory {
 public:
  ImportedMemory(LevelZeroDevice& device, std::byte* address)
      : HostMemory(address, address), device_(device) {}
  ~ImportedMemory() override {
    if (device_.functions_.import_pointer != nullptr)
      device_.functions_.release_pointer(device_.raw_driver_, address());
  }

 private:
  LevelZeroDevice& device_;
};

absl::StatusOr<std::unique_ptr<LevelZeroDevice>> LevelZeroDevice::Open(ze_driver_handle_t driver,
                                                                       ze_device_handle_t handle,
                                                                       bool asynchronous) {
  std::unique_ptr<LevelZeroDevice> device(new LevelZeroDevice);
  device->driver_ = driver;
  device->device_ = handle;
  ASSIGN_OR_RETURN(device->raw_driver_, Raw(ZEL_HANDLE_DRIVER, driver));
  ASSIGN_OR_RETURN(device->raw_device_, Raw(ZEL_HANDLE_DEVICE, handle));
  const ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  RETURN_IF_ZE_ERROR(zeContextCreate(driver, &desc, &device->context_));
  RETURN_IF_ERROR(device->ReadProperties());
  device->ReadPciAddress();
  ASSIGN_OR_RETURN(device->functions_, DriverFunctions::Find(driver, device->raw_driver_));
  ASSIGN_OR_RETURN(device->memory_, device->OpenMemory());
  device->properties_.synchronous = device->properties_.synchronous && !asynchronous;
  return device;
}

absl::StatusOr<std::unique_ptr<LevelZeroDevice>> LevelZeroDevice::OpenAgain() const {
  return Open(driver_, device_, !properties_.synchronous);
}

absl::Status LevelZeroDevice::ReadProperties() {
  ze_device_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  RETURN_IF_ZE_ERROR(zeDeviceGetProperties(device_, &properties));
  properties_.name = properties.name;
  properties_.kind = properties.type == ZE_DEVICE_TYPE_CPU ? "cpu" : "gpu";
  properties_.compute_units = std::max(1u, properties.numSlices) *
                              std::max(1u, properties.numSubslicesPerSlice) *
                              std::max(1u, properties.numEUsPerSubslice);
  // Drivers of other vendors run SPIR-V, are asynchronous, and may read pageable memory after the append.
  constexpr xpud_back_end_t kOther = {"intel", "gpu", XPUD_CODE_SPIRV, 0, 0, 1, 0};
  const xpud_back_end_t* back_end = &kOther;
  xpud_pfnDriverGetBackEnd_t get_back_end = nullptr;
  RETURN_IF_ERROR(OkIfAbsent(FindFunction(driver_, "xpudDriverGetBackEnd", get_back_end)));
  if (get_back_end != nullptr) RETURN_IF_ZE_ERROR(get_back_end(raw_driver_, &back_end));
  properties_.vendor = back_end->name;
  properties_.target = TargetOf(back_end->code);
  properties_.synchronous = back_end->synchronous != 0;
  takes_pageable_ = back_end->takes_pageable != 0;
  xpud_pfnDeviceGetPeakRates_t get_rates = nullptr;
  RETURN_IF_ERROR(OkIfAbsent(FindFunction(driver_, "xpudDeviceGetPeakRates", get_rates)));
  if (get_rates != nullptr) {
    xpud_peak_rates_t rates = {};
    RETURN_IF_ZE_ERROR(get_rates(raw_device_, &rates));
    properties_.peak = {rates.memory_bytes, rates.float_operations, rates.half_operations};
  } else {
    const uint64_t simd_units = uint64_t{properties_.compute_units} * properties.physicalEUSimdWidth;
    properties_.peak.float_operations = simd_units * properties.coreClockRate * 1'000'000;
  }
  ze_device_module_properties_t modules = {};
  modules.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES;
  RETURN_IF_ZE_ERROR(zeDeviceGetModuleProperties(device_, &modules));
  const auto* const id = reinterpret_cast<const char*>(modules.nativeKernelSupported.id);
  properties_.has_doubles = (modules.flags & ZE_DEVICE_MODULE_FLAG_FP64) != 0;
  properties_.processor.assign(id, strnlen(id, sizeof(modules.nativeKernelSupported.id)));
  ze_device_compute_properties_t compute = {};
  compute.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES;
  RETURN_IF_ZE_ERROR(zeDeviceGetComputeProperties(device_, &compute));
  RETURN_IF_ERROR(CheckRunsKernels(properties_, compute));
  properties_.most_groups = {compute.maxGroupCountX, compute.maxGroupCountY, compute.maxGroupCountZ};
  for (uint32_t& most : properties_.most_groups) most = std::min(most, kernels::kMaxLaunchGroups);
  uint32_t count = 0;
  RETURN_IF_ZE_ERROR(zeDeviceGetMemoryProperties(device_, &count, nullptr));
  std::vector<ze_device_memory_properties_t> memories(count);
  for (auto& memory : memories) memory.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  RETURN_IF_ZE_ERROR(zeDeviceGetMemoryProperties(device_, &count, memories.data()));
  for (const auto& memory : memories) properties_.total_memory += memory.totalSize;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LevelZeroMemory>> LevelZeroDevice::OpenMemory() const {
  ze_device_external_memory_properties_t external = {};
  external.stype = ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES;
  RETURN_IF_ZE_ERROR(zeDeviceGetExternalMemoryProperties(device_, &external));
  const bool exports = (external.memoryAllocationExportTypes & ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD) != 0;
  return LevelZeroMemory::Open(context_, device_,
                               {.device_name = properties_.name,
                                .exports = exports,
                                .new_is_zero = functions_.write_value != nullptr});
}

// Best effort: a driver that answers with an error, or with what is no address, leaves it unknown.
void LevelZeroDevice::ReadPciAddress() {
  if (!Lists(driver_, ZE_PCI_PROPERTIES_EXT_NAME)) return;
  ze_pci_ext_properties_t pci = {};
  pci.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES;
  if (zeDevicePciGetPropertiesExt(device_, &pci) != ZE_RESULT_SUCCESS) return;
  const ze_pci_address_ext_t& found = pci.address;
  properties_.pci_address = PciAddress::Of(found.domain, found.bus, found.device, found.function);
}

absl::Status LevelZeroDevice::StartTrace(xpud_pfnTraceReport_t report, void* user) {
  RETURN_IF_ZE_ERROR(functions_.start_trace(raw_driver_, report, user));
  return absl::OkStatus();
}

absl::Status LevelZeroDevice::FlushTrace() {
  RETURN_IF_ZE_ERROR(functions_.flush_trace(raw_driver_));
  return absl::OkStatus();
}

absl::Status LevelZeroDevice::StopTrace() {
  RETURN_IF_ZE_ERROR(functions_.stop_trace(raw_driver_));
  return absl::OkStatus();
}

LevelZeroDevice::~LevelZeroDevice() {
  mover_.reset();
  transfers_.reset();
  background_.reset();
  for (const LoadedKernel& kernel : kernels_) {
    if (kernel.handle != nullptr) zeKernelDestroy(kernel.handle);
  }
  for (const LoadedModule& module : modules_) zeModuleDestroy(module.handle);
  if (context_ != nullptr) zeContextDestroy(context_);
}

// Of our drivers only: whether another one maps imported memory shows too late, when a copy needs it.
bool LevelZeroDevice::CanMap(const LevelZeroDevice& other) const {
  const auto can_share = [](const LevelZeroMemory& memory) {
    return memory.moves_chunks() && memory.exports();
  };
  ze_bool_t can = 0;
  return driver_ == other.driver_ && functions_.write_value != nullptr && can_share(*memory_) &&
         can_share(*other.memory_) &&
         zeDeviceCanAccessPeer(device_, other.device_, &can) == ZE_RESULT_SUCCESS && can != 0;
}

absl::StatusOr<std::unique_ptr<HostMemory>> LevelZeroDevice::AllocateHost(uint64_t bytes) {
  const ze_host_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  void* address = nullptr;
  RETURN_IF_ZE_ERROR(zeMemAllocHost(context_, &desc, bytes, 64, &address));
  std::memset(address, 0, bytes);
  return std::make_unique<LevelZeroHostMemory>(context_, static_cast<std::byte*>(address));
}

// If the driver cannot import memory, copies use the driver's own path.
absl::StatusOr<std::unique_ptr<HostMemory>> LevelZeroDevice::Import(const transport::SharedBytes& memory) {
  if (functions_.import_pointer != nullptr) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    RETURN_IF_ZE_ERROR(functions_.import_pointer(raw_driver_, memory.bytes.data(),
                                                 (memory.bytes.size() + page - 1) / page * page));
  }
  return std::make_unique<ImportedMemory>(*this, memory.bytes.data());
}

void LevelZeroDevice::SetWake(std::function<void()> wake) {
  background_ = std::make_unique<Background>(wake);
  if (!memory_->moves_chunks()) return;
  transfers_ = std::make_unique<LevelZeroTransfers>(*memory_);
  mover_ = std::make_unique<ChunkMover>(std::move(wake), *transfers_);
}

void LevelZeroDevice::StartImport(const transport::SharedBytes& memory, uint64_t, ImportDone done) {
  if (functions_.import_pointer == nullptr) return done(Import(memory));
  using Imported = absl::StatusOr<std::unique_ptr<HostMemory>>;
  const auto imported = std::make_shared<Imported>(absl::UnknownError(""));
  background_->Run([this, memory, imported] { *imported = Import(memory); },
                   [imported, done = std::move(done)] { done(std::move(*imported)); });
}

std::vector<Verdict> LevelZeroDevice::Poll() {
  if (background_ != nullptr) background_->FinishDone();
  if (mover_ != nullptr) mover_->FinishDone();
  std::vector<Verdict> verdicts;
  for (LevelZeroQueue* queue : queues_) queue->TakeVerdict(verdicts);
  return verdicts;
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> LevelZeroDevice::CreateQueue(PriorityClass priority,
                                                                          uint64_t owner) {
  return CreateList(priority, owner);
}

absl::StatusOr<std::unique_ptr<LevelZeroQueue>> LevelZeroDevice::CreateList(PriorityClass priority,
                                                                            uint64_t owner) {
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.flags = XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
  desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  desc.priority = PriorityOf(priority);
  ze_command_list_handle_t list;
  ze_result_t result = zeCommandListCreateImmediate(context_, device_, &desc, &list);
  // Drivers without our functions ignore the flag. The validation layer of API 1.4 does not know it.
  const bool known = result != ZE_RESULT_ERROR_INVALID_ENUMERATION;
  if (!known) {
    desc.flags = 0;
    result = zeCommandListCreateImmediate(context_, device_, &desc, &list);
  }
  RETURN_IF_ERROR(ToStatus(result, "zeCommandListCreateImmediate"));
  auto queue =
      std::make_unique<LevelZeroQueue>(*this, list, known && functions_.write_value != nullptr, owner);
  RETURN_IF_ERROR(queue->Open());
  return queue;
}

absl::StatusOr<ze_module_handle_t> LevelZeroDevice::CreateModule(ze_module_format_t format, const void* input,
                                                                 size_t bytes) const {
  ze_module_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
  desc.format = format;
  desc.pInputModule = static_cast<const uint8_t*>(input);
  desc.inputSize = bytes;
  ze_module_handle_t handle = nullptr;
  ze_module_build_log_handle_t log = nullptr;
  const ze_result_t result =
      (functions_.create_module != nullptr ? functions_.create_module : zeModuleCreate)(context_, device_,
                                                                                        &desc, &handle, &log);
  const std::string text = TakeBuildLog(log);
  if (result == ZE_RESULT_SUCCESS) return handle;
  return absl::InternalError(absl::StrCat("loading a kernel module failed with 0x",
                                          absl::Hex(static_cast<uint32_t>(result)), ": ", text));
}

absl::StatusOr<std::string> LevelZeroDevice::Assemble(const std::string& text) {
  ASSIGN_OR_RETURN(ze_module_handle_t module,
                   CreateModule(ZE_MODULE_FORMAT_NATIVE, text.data(), text.size()));
  size_t bytes = 0;
  std::string code;
  ze_result_t result = zeModuleGetNativeBinary(module, &bytes, nullptr);
  if (result == ZE_RESULT_SUCCESS) {
    code.resize(bytes);
    result = zeModuleGetNativeBinary(module, &bytes, reinterpret_cast<uint8_t*>(code.data()));
  }
  zeModuleDestroy(module);
  RETURN_IF_ERROR(ToStatus(result, "zeModuleGetNativeBinary"));
  return code;
}

// Uses a list and a device object of its own, because the lane's thread uses this object.
absl::StatusOr<uint64_t> LevelZeroDevice::RunHostKernel(const kernels::Launch& launch) {
  ASSIGN_OR_RETURN(auto device, OpenAgain());
  ASSIGN_OR_RETURN(auto list, device->CreateList(PriorityClass::kInteractive));
  std::vector<const void*> arguments(launch.arguments(), launch.arguments() + launch.argument_count());
  arguments.push_back(nullptr);
  return list->RunHostKernel(launch.kernel(), arguments);
}

absl::StatusOr<ze_module_handle_t> LevelZeroDevice::LoadModule(const kernels::ModuleImage& image) {
  for (const LoadedModule& module : modules_) {
    if (module.image == &image) return module.handle;
  }
  const bool host = image.format == kernels::ModuleImage::Format::kHost;
  const xpud_host_module_t* const table = host ? kernels::FindHostModule(image.bytes) : nullptr;
  if (host && table == nullptr)
    return absl::InternalError(absl::StrCat("this binary has no HOST module '", image.bytes, "'"));
  ASSIGN_OR_RETURN(
      ze_module_handle_t handle,
      CreateModule(FormatOf(image.format), host ? table : static_cast<const void*>(image.bytes.data()),
                   host ? sizeof(*table) : image.bytes.size()));
  modules_.push_back({&image, handle});
  return handle;
}

void LevelZeroDevice::Unload(const kernels::Kernel& kernel) {
  if (kernel.index < kernels_.size() && kernels_[kernel.index].handle != nullptr)
    zeKernelDestroy(std::exchange(kernels_[kernel.index], {}).handle);
  const auto module = std::find_if(modules_.begin(), modules_.end(),
                                   [&](const LoadedModule& m) { return m.image == kernel.module; });
  if (module == modules_.end()) return;
  zeModuleDestroy(module->handle);
  modules_.erase(module);
}

// An asynchronous device reports completion only for all its work, so nothing is unloaded while it works.
void LevelZeroDevice::Forget(std::vector<const kernels::Kernel*>& kernels) {
  const bool idle = properties_.synchronous ||
                    std::all_of(queues_.begin(), queues_.end(),
                                [](LevelZeroQueue* queue) { return queue->Synchronize(0).ok(); });
  if (!idle) return;
  std::erase_if(kernels, [&](const kernels::Kernel* kernel) {
    const bool needed = std::any_of(queues_.begin(), queues_.end(),
                                    [&](const LevelZeroQueue* queue) { return queue->Needs(*kernel); });
    if (!needed) Unload(*kernel);
    return !needed;
  });
}

absl::StatusOr<const LevelZeroDevice::LoadedKernel*> LevelZeroDevice::Load(const kernels::Kernel& kernel) {
  if (kernel.index < kernels_.size() && kernels_[kernel.index].handle != nullptr) [[likely]]
    return &kernels_[kernel.index];
  ASSIGN_OR_RETURN(ze_module_handle_t module, LoadModule(*kernel.module));
  const ze_kernel_desc_t desc = {ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, kernel.entry.c_str()};
  LoadedKernel loaded;
  RETURN_IF_ZE_ERROR(zeKernelCreate(module, &desc, &loaded.handle));
  absl::Status prepared = Prepare(kernel, loaded);
  if (!prepared.ok()) {
    zeKernelDestroy(loaded.handle);
    return prepared;
  }
  if (kernel.index >= kernels_.size()) kernels_.resize(kernel.index + 1);
  kernels_[kernel.index] = std::move(loaded);
  return &kernels_[kernel.index];
}

absl::Status LevelZeroDevice::Prepare(const kernels::Kernel& kernel, LoadedKernel& loaded) const {
  ASSIGN_OR_RETURN(loaded.raw, Raw(ZEL_HANDLE_KERNEL, loaded.handle));
  if (functions_.launch == nullptr) {
    ASSIGN_OR_RETURN(loaded.arguments, kernels::ArgumentsOf(kernel));
  }
  if (properties_.target != kernels::Target::kSpirv) return absl::OkStatus();
  // Some kernels find addresses in memory.
  RETURN_IF_ZE_ERROR(zeKernelSetIndirectAccess(loaded.handle, ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE |
                                                                  ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST |
                                                                  ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED));
  return absl::OkStatus();
}

SensorReadings LevelZeroDevice::ReadSensors() {
  return ReadLevelZeroSensors(device_, properties_.kind == "gpu");
}

}  // namespace xpud::executor
