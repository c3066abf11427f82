// Modules of a CUDA device: NATIVE code (a cubin, or PTX that is compiled to one), or an application's HOST
// table, whose functions enqueue work themselves. Kernels share the code, so it stays loaded as long as the
// module or a kernel lives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drivers/cuda/device.h"
#include "drivers/frontend/entry_point.h"
#include "drivers/frontend/module.h"

namespace xpud::drivers::cuda {

struct Entry : EntryPoint {
  CUfunction function = nullptr;  // null for HOST kernels
  uint32_t local_bytes = 0;       // local memory of a group, in addition to what its code declares
};

// The contents of a module. Immutable once created.
struct Code {
  explicit Code(CudaDevice& owner) : device(owner) {}
  ~Code();

  CudaDevice& device;
  std::vector<Entry> entries;
  CUmodule module = nullptr;  // null for HOST modules
  std::string binary;         // the cubin, or PTX that was loaded as it is; empty for HOST modules
};

class CudaKernel final : public Kernel {
 public:
  CudaKernel(const Driver* driver, std::shared_ptr<const Code> code, const Entry& entry)
      : Kernel(driver, entry), code_(std::move(code)), entry_(entry) {}

  const std::shared_ptr<const Code>& code() const { return code_; }
  const Entry& entry() const { return entry_; }
  const xpud_group_size_t& group_size() const { return group_size_; }

  ze_result_t SetGroupSize(uint32_t x, uint32_t y, uint32_t z) override;
  void SuggestGroupSize(const uint32_t global[3], uint32_t group[3]) const override;
  uint32_t MaxCooperativeGroups() const override;
  void GetProperties(ze_kernel_properties_t& properties) const override;

 private:
  uint32_t Attribute(CUfunction_attribute attribute) const;

  const std::shared_ptr<const Code> code_;
  const Entry& entry_;
  xpud_group_size_t group_size_{1, 1, 1};
};

class CudaModule final : public Module {
 public:
  // `log` receives the reason of a refusal and the messages of the PTX compiler.
  static ze_result_t Create(CudaDevice& device, const ze_module_desc_t& desc, std::unique_ptr<Module>& module,
                            std::string& log);
  CudaModule(const Driver* driver, std::shared_ptr<const Code> code)
      : Module(driver), code_(std::move(code)) {}

  ze_result_t CreateKernel(const ze_kernel_desc_t& desc, std::unique_ptr<Kernel>& kernel) override;
  std::vector<const char*> KernelNames() const override { return NamesOf(code_->entries); }
  // Returns the cubin, also of a module made from PTX, unless it was loaded as it is: then the PTX. Loading
  // it again needs no compilation.
  ze_result_t NativeBinary(std::string& bytes) const override;
  ze_result_t FunctionAddress(const char* name, void*& address) const override;
  ze_result_t GlobalAddress(const char* name, size_t& size, void*& address) const override;

 private:
  const std::shared_ptr<const Code> code_;
};

}  // namespace xpud::drivers::cuda
