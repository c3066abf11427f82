#include "daemon/executor/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/executor/device_queue.h"
#include "daemon/executor/ze_status.h"
#include "kernels/library/host_modules.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {
namespace {

constexpr size_t kChunkAlignment = 2 << 20;

template <typename Function>
absl::Status Find(ze_driver_handle_t driver, const char* name, Function& function) {
  void* address = nullptr;
  if (zeDriverGetExtensionFunctionAddress(driver, name, &address) != ZE_RESULT_SUCCESS ||
      address == nullptr) {
    return absl::UnimplementedError(absl::StrCat("the Level Zero driver has no ", name));
  }
  function = reinterpret_cast<Function>(address);
  return absl::OkStatus();
}

kernels::Target TargetOf(const std::string& vendor) {
  if (vendor == "cpu") return kernels::Target::kHost;
  return vendor == "cuda" ? kernels::Target::kNvptx : kernels::Target::kSpirv;
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

}  // namespace

Chunk::~Chunk() { zeMemFree(context_, address_); }

HostMemory::~HostMemory() { zeMemFree(context_, address_); }

ImportedMemory::~ImportedMemory() { device_.functions_.release_pointer(device_.driver_, address_); }

absl::StatusOr<std::unique_ptr<Device>> Device::Open(ze_driver_handle_t driver, ze_device_handle_t handle,
                                                     bool asynchronous) {
  std::unique_ptr<Device> device(new Device);
  device->driver_ = driver;
  device->device_ = handle;
  const ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  RETURN_IF_ZE_ERROR(zeContextCreate(driver, &desc, &device->context_));
  RETURN_IF_ERROR(device->ReadProperties(driver));
  RETURN_IF_ERROR(device->FindFunctions(driver));
  device->properties_.synchronous = device->properties_.vendor == "cpu" && !asynchronous;
  return device;
}

absl::Status Device::ReadProperties(ze_driver_handle_t driver) {
  ze_device_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  RETURN_IF_ZE_ERROR(zeDeviceGetProperties(device_, &properties));
  properties_.name = properties.name;
  properties_.kind = properties.type == ZE_DEVICE_TYPE_CPU ? "cpu" : "gpu";
  properties_.compute_units = std::max(1u, properties.numSlices) *
                              std::max(1u, properties.numSubslicesPerSlice) *
                              std::max(1u, properties.numEUsPerSubslice);
  xpud_pfnDriverGetVendor_t get_vendor = nullptr;
  const char* vendor = "intel";
  if (Find(driver, "xpudDriverGetVendor", get_vendor).ok()) get_vendor(driver, &vendor);
  properties_.vendor = vendor;
  properties_.target = TargetOf(properties_.vendor);
  ze_device_module_properties_t modules = {};
  modules.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES;
  RETURN_IF_ZE_ERROR(zeDeviceGetModuleProperties(device_, &modules));
  const auto* const id = reinterpret_cast<const char*>(modules.nativeKernelSupported.id);
  properties_.processor.assign(id, strnlen(id, sizeof(modules.nativeKernelSupported.id)));
  uint32_t count = 0;
  RETURN_IF_ZE_ERROR(zeDeviceGetMemoryProperties(device_, &count, nullptr));
  std::vector<ze_device_memory_properties_t> memories(count);
  for (auto& memory : memories) memory.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  RETURN_IF_ZE_ERROR(zeDeviceGetMemoryProperties(device_, &count, memories.data()));
  for (const auto& memory : memories) properties_.total_memory += memory.totalSize;
  return absl::OkStatus();
}

absl::Status Device::FindFunctions(ze_driver_handle_t driver) {
  RETURN_IF_ERROR(Find(driver, "zeCommandListAppendLaunchKernelWithArguments", functions_.launch));
  RETURN_IF_ERROR(Find(driver, "zeCommandListHostSynchronize", functions_.synchronize));
  RETURN_IF_ERROR(Find(driver, "xpudModuleCreate", functions_.create_module));
  RETURN_IF_ERROR(Find(driver, "xpudCommandListAppendWriteValue64", functions_.write_value));
  const bool imports = Find(driver, "zexDriverImportExternalPointer", functions_.import_pointer).ok() &&
                       Find(driver, "zexDriverReleaseImportedPointer", functions_.release_pointer).ok();
  if (!imports) functions_.import_pointer = nullptr;
  return absl::OkStatus();
}

Device::~Device() {
  for (ze_kernel_handle_t kernel : kernels_) {
    if (kernel != nullptr) zeKernelDestroy(kernel);
  }
  for (const LoadedModule& module : modules_) zeModuleDestroy(module.handle);
  if (context_ != nullptr) zeContextDestroy(context_);
}

absl::StatusOr<std::unique_ptr<Chunk>> Device::AllocateChunk(uint64_t bytes) {
  const ze_external_memory_export_desc_t exported = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                     ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
  const ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, &exported, 0, 0};
  void* address = nullptr;
  RETURN_IF_ZE_ERROR(zeMemAllocDevice(context_, &desc, bytes, kChunkAlignment, device_, &address));
  return std::make_unique<Chunk>(context_, address, bytes);
}

absl::StatusOr<std::unique_ptr<HostMemory>> Device::AllocateHost(uint64_t bytes) {
  const ze_host_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  void* address = nullptr;
  RETURN_IF_ZE_ERROR(zeMemAllocHost(context_, &desc, bytes, 64, &address));
  std::memset(address, 0, bytes);
  return std::make_unique<HostMemory>(context_, address);
}

absl::StatusOr<std::unique_ptr<ImportedMemory>> Device::Import(std::span<std::byte> memory) {
  if (functions_.import_pointer == nullptr) return nullptr;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  RETURN_IF_ZE_ERROR(
      functions_.import_pointer(driver_, memory.data(), (memory.size() + page - 1) / page * page));
  return std::make_unique<ImportedMemory>(*this, memory.data());
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> Device::CreateQueue(int priority) {
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.flags = XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
  desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  desc.priority = priority < 0 ? ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH : ZE_COMMAND_QUEUE_PRIORITY_NORMAL;
  ze_command_list_handle_t list;
  ze_result_t result = zeCommandListCreateImmediate(context_, device_, &desc, &list);
  const bool in_order = result != ZE_RESULT_ERROR_INVALID_ENUMERATION;
  if (!in_order) {  // the validation layer of API 1.4 does not know the flag
    desc.flags = 0;
    result = zeCommandListCreateImmediate(context_, device_, &desc, &list);
  }
  RETURN_IF_ERROR(ToStatus(result, "zeCommandListCreateImmediate"));
  return std::make_unique<DeviceQueue>(*this, list, in_order);
}

absl::StatusOr<ze_module_handle_t> Device::CreateModule(ze_module_format_t format, const void* input,
                                                        size_t bytes) const {
  ze_module_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
  desc.format = format;
  desc.pInputModule = static_cast<const uint8_t*>(input);
  desc.inputSize = bytes;
  ze_module_handle_t handle = nullptr;
  ze_module_build_log_handle_t log = nullptr;
  const ze_result_t result = functions_.create_module(context_, device_, &desc, &handle, &log);
  const std::string text = TakeBuildLog(log);
  if (result == ZE_RESULT_SUCCESS) return handle;
  return absl::InternalError(absl::StrCat("loading a kernel module failed with 0x",
                                          absl::Hex(static_cast<uint32_t>(result)), ": ", text));
}

absl::StatusOr<std::string> Device::Assemble(const std::string& text) const {
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

absl::StatusOr<ze_module_handle_t> Device::LoadModule(const kernels::ModuleImage& image) {
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

absl::StatusOr<ze_kernel_handle_t> Device::Load(const kernels::Kernel& kernel) {
  if (kernel.index < kernels_.size() && kernels_[kernel.index] != nullptr) [[likely]]
    return kernels_[kernel.index];
  ASSIGN_OR_RETURN(ze_module_handle_t module, LoadModule(*kernel.module));
  const ze_kernel_desc_t desc = {ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, kernel.entry.c_str()};
  ze_kernel_handle_t handle;
  RETURN_IF_ZE_ERROR(zeKernelCreate(module, &desc, &handle));
  if (kernel.index >= kernels_.size()) kernels_.resize(kernel.index + 1);
  kernels_[kernel.index] = handle;
  return handle;
}

}  // namespace xpud::executor
