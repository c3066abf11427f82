// Modules of a CUDA device: NATIVE code (a cubin, or PTX that is compiled to one), or an application's HOST
// table, whose functions enqueue for themselves. Kernels share the code, so that it stays loaded as long as
// either lives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drivers/cuda/device.h"
#include "drivers/frontend/host_module.h"
#include "drivers/frontend/module.h"

namespace xpud::drivers::cuda {

struct Entry {
  std::string name;
  std::vector<uint32_t> argument_sizes;
  CUfunction function = nullptr;         // null for HOST kernels
  xpud_host_kernel_fn_t host = nullptr;  // null for NATIVE kernels
};

// What a module holds; immutable once made.
struct Code {
  explicit Code(CudaDevice& owner) : device(owner) {}
  ~Code();

  CudaDevice& device;
  std::vector<Entry> entries;
  CUmodule module = nullptr;  // null for HOST modules
  std::string binary;         // the cubin; empty for HOST modules
};

// Argument values of one kernel, as cuLaunchKernel wants them: one pointer for each.
class Arguments {
 public:
  explicit Arguments(const std::vector<uint32_t>& sizes);
  // `size` must be the argument's. A null value is all zeroes.
  void Set(size_t index, const void* value, size_t size);
  const void* const* pointers() const { return pointers_.data(); }

 private:
  struct alignas(16) Line {
    std::byte bytes[16];
  };
  std::unique_ptr<Line[]> values_;
  std::vector<const void*> pointers_;
};

class CudaKernel final : public Kernel {
 public:
  CudaKernel(const Driver* driver, std::shared_ptr<const Code> code, const Entry& entry)
      : Kernel(driver), code_(std::move(code)), entry_(entry), arguments_(entry.argument_sizes) {}

  const std::shared_ptr<const Code>& code() const { return code_; }
  const Entry& entry() const { return entry_; }
  const Arguments& arguments() const { return arguments_; }
  const xpud_group_size_t& group_size() const { return group_size_; }

  const std::string& Name() const override { return entry_.name; }
  ze_result_t SetArgument(uint32_t index, size_t size, const void* value) override;
  ze_result_t SetGroupSize(uint32_t x, uint32_t y, uint32_t z) override;
  void SuggestGroupSize(const uint32_t global[3], uint32_t group[3]) const override;
  uint32_t MaxCooperativeGroups() const override;
  void GetProperties(ze_kernel_properties_t& properties) const override;

 private:
  uint32_t Attribute(CUfunction_attribute attribute) const;

  const std::shared_ptr<const Code> code_;
  const Entry& entry_;
  Arguments arguments_;
  xpud_group_size_t group_size_{1, 1, 1};
};

class CudaModule final : public Module {
 public:
  // `log` explains a refusal, and holds what the PTX compiler said.
  static ze_result_t Create(CudaDevice& device, const ze_module_desc_t& desc, std::unique_ptr<Module>& module,
                            std::string& log);
  CudaModule(const Driver* driver, std::shared_ptr<const Code> code)
      : Module(driver), code_(std::move(code)) {}

  ze_result_t CreateKernel(const ze_kernel_desc_t& desc, std::unique_ptr<Kernel>& kernel) override;
  std::vector<const char*> KernelNames() const override;
  // The cubin, also of a module made from PTX: loading it again costs no compilation.
  ze_result_t NativeBinary(std::string& bytes) const override;
  ze_result_t FunctionAddress(const char* name, void*& address) const override;
  ze_result_t GlobalAddress(const char* name, size_t& size, void*& address) const override;

 private:
  const Entry* Find(const char* name) const;

  const std::shared_ptr<const Code> code_;
};

}  // namespace xpud::drivers::cuda
