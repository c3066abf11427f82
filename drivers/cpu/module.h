// Modules of a CPU device: a table of entry points, from an application's HOST table or from a NATIVE
// object. Kernels share the code, so it stays mapped as long as the module or a kernel lives.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "drivers/cpu/device.h"
#include "drivers/cpu/elf_object.h"
#include "drivers/frontend/entry_point.h"
#include "drivers/frontend/module.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers::cpu {

// The contents of a module. Immutable.
struct Code {
  std::vector<EntryPoint> entries;
  std::unique_ptr<const ElfObject> object;  // null for HOST modules
  std::string binary;                       // empty for HOST modules
};

// The most bytes of all of a kernel's arguments, and of one argument; module properties state both.
constexpr uint32_t kMaxArgumentsSize = 64 << 10;

class CpuKernel final : public Kernel {
 public:
  CpuKernel(const CpuDevice& device, std::shared_ptr<const Code> code, const EntryPoint& entry)
      : Kernel(device.driver(), entry), device_(device), code_(std::move(code)), entry_(entry) {}

  const CpuDevice& device() const { return device_; }
  const EntryPoint& entry() const { return entry_; }

  ze_result_t SetGroupSize(uint32_t x, uint32_t y, uint32_t z) override;
  void SuggestGroupSize(const uint32_t[3], uint32_t group[3]) const override {
    group[0] = group[1] = group[2] = 1;
  }
  uint32_t MaxCooperativeGroups() const override { return 1; }
  void GetProperties(ze_kernel_properties_t& properties) const override;

 private:
  const CpuDevice& device_;
  const std::shared_ptr<const Code> code_;
  const EntryPoint& entry_;
};

class CpuModule final : public Module {
 public:
  // `log` receives the reason of a refusal.
  static ze_result_t Create(const CpuDevice& device, const ze_module_desc_t& desc,
                            std::unique_ptr<Module>& module, std::string& log);
  CpuModule(const CpuDevice& device, std::shared_ptr<const Code> code)
      : Module(device.driver()), device_(device), code_(std::move(code)) {}

  ze_result_t CreateKernel(const ze_kernel_desc_t& desc, std::unique_ptr<Kernel>& kernel) override;
  std::vector<const char*> KernelNames() const override { return NamesOf(code_->entries); }
  ze_result_t NativeBinary(std::string& bytes) const override;
  ze_result_t FunctionAddress(const char* name, void*& address) const override;
  ze_result_t GlobalAddress(const char* name, size_t& size, void*& address) const override;

 private:
  const CpuDevice& device_;
  const std::shared_ptr<const Code> code_;
};

}  // namespace xpud::drivers::cpu
