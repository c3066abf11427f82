// Entry points zeModule*, zeModuleBuildLog* and zeKernel*.
#include "drivers/frontend/module.h"

#include <level_zero/ze_ddi.h>

#include <cstring>

#include "drivers/frontend/context.h"
#include "drivers/frontend/entry.h"
#include "drivers/frontend/table.h"

namespace xpud::drivers {
namespace {

// Returns bytes in two calls: with a null `out`, returns the size.
template <typename Byte>
ze_result_t AnswerBytes(const char* bytes, size_t size, size_t* out_size, Byte* out) {
  if (out == nullptr || *out_size > size) *out_size = size;
  if (out != nullptr) std::memcpy(out, bytes, *out_size);
  return ZE_RESULT_SUCCESS;
}

ze_result_t AddLog(const Driver* driver, std::string text, ze_module_build_log_handle_t* handle) {
  return CreateInto<ModuleBuildLog>(handle, [&](std::unique_ptr<ModuleBuildLog>& out) {
    out = std::make_unique<ModuleBuildLog>(driver, std::move(text));
    return ZE_RESULT_SUCCESS;
  });
}

}  // namespace

ze_result_t ModuleCreate(ze_context_handle_t context_handle, ze_device_handle_t device_handle,
                         const ze_module_desc_t* desc, ze_module_handle_t* module,
                         ze_module_build_log_handle_t* log_handle) {
  XPUD_FIND(Context, context, context_handle);
  XPUD_FIND(Device, device, device_handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(desc->pInputModule);
  XPUD_NOT_NULL(module);
  XPUD_REQUIRE(desc->inputSize != 0, ZE_RESULT_ERROR_INVALID_SIZE);
  XPUD_REQUIRE(context.driver() == device.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  std::string log;
  const ze_result_t result = CreateInto<Module>(
      module, [&](std::unique_ptr<Module>& out) { return context.CreateModule(device, *desc, out, log); });
  if (log_handle == nullptr) return result;
  const ze_result_t logged = AddLog(context.driver(), std::move(log), log_handle);
  return result == ZE_RESULT_SUCCESS ? logged : result;
}

namespace {

// Our modules have no undefined symbols, so there is nothing to link.
ze_result_t DynamicLink(uint32_t count, ze_module_handle_t* modules,
                        ze_module_build_log_handle_t* log_handle) {
  XPUD_NOT_NULL(modules);
  XPUD_REQUIRE(count != 0, ZE_RESULT_ERROR_INVALID_SIZE);
  XPUD_FIND(Module, first, modules[0]);
  const ze_result_t result =
      Guard([&] { return Resolved<Module>().Resolve(first.driver(), count, modules); });
  if (result != ZE_RESULT_SUCCESS || log_handle == nullptr) return result;
  return AddLog(first.driver(), "", log_handle);
}

ze_result_t GetNativeBinary(ze_module_handle_t handle, size_t* size, uint8_t* out) {
  XPUD_FIND(Module, module, handle);
  XPUD_NOT_NULL(size);
  return Guard([&]() -> ze_result_t {
    std::string bytes;
    const ze_result_t result = module.NativeBinary(bytes);
    return result == ZE_RESULT_SUCCESS ? AnswerBytes(bytes.data(), bytes.size(), size, out) : result;
  });
}

ze_result_t GetGlobalPointer(ze_module_handle_t handle, const char* name, size_t* size_out,
                             void** address_out) {
  XPUD_FIND(Module, module, handle);
  XPUD_NOT_NULL(name);
  size_t size = 0;
  void* address = nullptr;
  const ze_result_t result = Guard([&] { return module.GlobalAddress(name, size, address); });
  if (result != ZE_RESULT_SUCCESS) return result;
  if (size_out != nullptr) *size_out = size;
  if (address_out != nullptr) *address_out = address;
  return ZE_RESULT_SUCCESS;
}

ze_result_t GetKernelNames(ze_module_handle_t handle, uint32_t* count, const char** names) {
  XPUD_FIND(Module, module, handle);
  XPUD_NOT_NULL(count);
  return Guard([&] {
    return Answer(module.KernelNames(), count, names, [](const char*& out, const char* name) { out = name; });
  });
}

ze_result_t GetProperties(ze_module_handle_t handle, ze_module_properties_t* properties) {
  XPUD_FIND(Module, module, handle);
  XPUD_NOT_NULL(properties);
  static_cast<void>(module);
  properties->flags = 0;  // no imports
  return ZE_RESULT_SUCCESS;
}

ze_result_t GetFunctionPointer(ze_module_handle_t handle, const char* name, void** address) {
  XPUD_FIND(Module, module, handle);
  XPUD_NOT_NULL(name);
  XPUD_NOT_NULL(address);
  return Guard([&] { return module.FunctionAddress(name, *address); });
}

ze_result_t LogGetString(ze_module_build_log_handle_t handle, size_t* size, char* out) {
  XPUD_FIND(ModuleBuildLog, log, handle);
  XPUD_NOT_NULL(size);
  return AnswerBytes(log.text().c_str(), log.text().size() + 1, size, out);
}

ze_result_t KernelCreate(ze_module_handle_t handle, const ze_kernel_desc_t* desc,
                         ze_kernel_handle_t* kernel) {
  XPUD_FIND(Module, module, handle);
  XPUD_NOT_NULL(desc);
  XPUD_NOT_NULL(desc->pKernelName);
  XPUD_NOT_NULL(kernel);
  return CreateInto<Kernel>(kernel,
                            [&](std::unique_ptr<Kernel>& out) { return module.CreateKernel(*desc, out); });
}

template <typename Flags>
ze_result_t AcceptHint(ze_kernel_handle_t handle, Flags) {
  XPUD_FIND(Kernel, kernel, handle);
  static_cast<void>(kernel);
  return ZE_RESULT_SUCCESS;
}

ze_result_t SetGroupSize(ze_kernel_handle_t handle, uint32_t x, uint32_t y, uint32_t z) {
  XPUD_FIND(Kernel, kernel, handle);
  return kernel.SetGroupSize(x, y, z);
}

ze_result_t SuggestGroupSize(ze_kernel_handle_t handle, uint32_t global_x, uint32_t global_y,
                             uint32_t global_z, uint32_t* x, uint32_t* y, uint32_t* z) {
  XPUD_FIND(Kernel, kernel, handle);
  XPUD_REQUIRE(x != nullptr && y != nullptr && z != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  const uint32_t global[3] = {global_x, global_y, global_z};
  uint32_t group[3] = {1, 1, 1};
  kernel.SuggestGroupSize(global, group);
  *x = group[0];
  *y = group[1];
  *z = group[2];
  return ZE_RESULT_SUCCESS;
}

ze_result_t SuggestMaxCooperativeGroupCount(ze_kernel_handle_t handle, uint32_t* count) {
  XPUD_FIND(Kernel, kernel, handle);
  XPUD_NOT_NULL(count);
  *count = kernel.MaxCooperativeGroups();
  return ZE_RESULT_SUCCESS;
}

ze_result_t SetArgumentValue(ze_kernel_handle_t handle, uint32_t index, size_t size, const void* value) {
  XPUD_FIND(Kernel, kernel, handle);
  return kernel.SetArgument(index, size, value);
}

ze_result_t GetIndirectAccess(ze_kernel_handle_t handle, ze_kernel_indirect_access_flags_t* flags) {
  XPUD_FIND(Kernel, kernel, handle);
  XPUD_NOT_NULL(flags);
  static_cast<void>(kernel);
  *flags = ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE |
           ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED;
  return ZE_RESULT_SUCCESS;
}

ze_result_t KernelGetProperties(ze_kernel_handle_t handle, ze_kernel_properties_t* properties) {
  XPUD_FIND(Kernel, kernel, handle);
  XPUD_NOT_NULL(properties);
  ze_kernel_properties_t filled{};
  filled.numKernelArgs = kernel.NumArguments();
  kernel.GetProperties(filled);
  AssignKeepingChain(*properties, filled);
  return ZE_RESULT_SUCCESS;
}

ze_result_t GetName(ze_kernel_handle_t handle, size_t* size, char* out) {
  XPUD_FIND(Kernel, kernel, handle);
  XPUD_NOT_NULL(size);
  return AnswerBytes(kernel.Name().c_str(), kernel.Name().size() + 1, size, out);
}

}  // namespace
}  // namespace xpud::drivers

using namespace xpud::drivers;

XPUD_DDI_TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t) {
  put.Put(table.pfnCreate, ModuleCreate);
  put.Put(table.pfnDestroy, Destroy<Module>);
  put.Put(table.pfnDynamicLink, DynamicLink);
  put.Put(table.pfnGetNativeBinary, GetNativeBinary);
  put.Put(table.pfnGetGlobalPointer, GetGlobalPointer);
  put.Put(table.pfnGetKernelNames, GetKernelNames);
  put.Put(table.pfnGetProperties, GetProperties);
  put.Put(table.pfnGetFunctionPointer, GetFunctionPointer);
  put.PutUnsupported(ZE_API_VERSION_1_3, table.pfnInspectLinkageExt);
}

XPUD_DDI_TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t) {
  put.Put(table.pfnDestroy, Destroy<ModuleBuildLog>);
  put.Put(table.pfnGetString, LogGetString);
}

XPUD_DDI_TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t) {
  put.Put(table.pfnCreate, KernelCreate);
  put.Put(table.pfnDestroy, Destroy<Kernel>);
  put.Put(table.pfnSetCacheConfig, AcceptHint<ze_cache_config_flags_t>);
  put.Put(table.pfnSetGroupSize, SetGroupSize);
  put.Put(table.pfnSuggestGroupSize, SuggestGroupSize);
  put.Put(table.pfnSuggestMaxCooperativeGroupCount, SuggestMaxCooperativeGroupCount);
  put.Put(table.pfnSetArgumentValue, SetArgumentValue);
  put.Put(table.pfnSetIndirectAccess, AcceptHint<ze_kernel_indirect_access_flags_t>);
  put.Put(table.pfnGetIndirectAccess, GetIndirectAccess);
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetSourceAttributes);
  put.Put(table.pfnGetProperties, KernelGetProperties);
  put.Put(table.pfnGetName, GetName);
}

XPUD_DDI_TABLE(zeGetKernelExpProcAddrTable, ze_kernel_exp_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_1, table.pfnSetGlobalOffsetExp);
  put.PutUnsupported(ZE_API_VERSION_1_2, table.pfnSchedulingHintExp);
}
