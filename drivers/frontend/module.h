// Interfaces of modules and kernels. A module outlives its kernels' launches (Level Zero's rule). A back
// end's kernel owns what it needs of its module, including the entry point. REQUIRES: one thread at a time
// sets a kernel's arguments.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <string>
#include <vector>

#include "drivers/frontend/arguments.h"
#include "drivers/frontend/entry_point.h"
#include "drivers/frontend/object.h"

namespace xpud::drivers {

class Kernel : public Object {
 public:
  Kernel(const Driver* driver, const EntryPoint& entry)
      : Object(driver), entry_(entry), arguments_(entry.argument_sizes) {}
  using Handle = ze_kernel_handle_t;
  static constexpr Kind kKind = Kind::kKernel;

  const std::string& Name() const { return entry_.name; }
  uint32_t NumArguments() const { return static_cast<uint32_t>(entry_.argument_sizes.size()); }
  ze_result_t SetArgument(uint32_t index, size_t size, const void* value);
  // The arguments that were set.
  const Arguments& arguments() const { return arguments_; }

  virtual ze_result_t SetGroupSize(uint32_t x, uint32_t y, uint32_t z) = 0;
  virtual void SuggestGroupSize(const uint32_t global[3], uint32_t group[3]) const = 0;
  virtual uint32_t MaxCooperativeGroups() const = 0;
  // Adds a back end's properties to the common ones.
  virtual void GetProperties(ze_kernel_properties_t& properties) const = 0;

 private:
  const EntryPoint& entry_;
  Arguments arguments_;
};

class Module : public Object {
 public:
  using Object::Object;
  using Handle = ze_module_handle_t;
  static constexpr Kind kKind = Kind::kModule;

  virtual ze_result_t CreateKernel(const ze_kernel_desc_t& desc, std::unique_ptr<Kernel>& kernel) = 0;
  virtual std::vector<const char*> KernelNames() const = 0;  // valid while the module lives
  virtual ze_result_t NativeBinary(std::string& bytes) const = 0;
  virtual ze_result_t FunctionAddress(const char* name, void*& address) const = 0;
  virtual ze_result_t GlobalAddress(const char* name, size_t& size, void*& address) const = 0;
};

// The messages of a build. The application owns it, whether or not the build succeeded.
class ModuleBuildLog final : public Object {
 public:
  ModuleBuildLog(const Driver* driver, std::string text) : Object(driver), text_(std::move(text)) {}
  using Handle = ze_module_build_log_handle_t;
  static constexpr Kind kKind = Kind::kModuleBuildLog;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The entry point zeModuleCreate, also available as an extension function.
ze_result_t ModuleCreate(ze_context_handle_t context_handle, ze_device_handle_t device_handle,
                         const ze_module_desc_t* desc, ze_module_handle_t* module,
                         ze_module_build_log_handle_t* log_handle);

}  // namespace xpud::drivers
