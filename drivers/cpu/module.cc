#include "drivers/cpu/module.h"

#include <cstring>
#include <string_view>

namespace xpud::drivers::cpu {
namespace {

constexpr std::string_view kArgumentSizesSuffix = ".arg_sizes";
constexpr uint32_t kMaxArguments = 1024;

// Returns an error text, or "" if the sizes are acceptable.
std::string CheckArguments(const std::string& kernel, const std::vector<uint32_t>& sizes) {
  uint64_t total = 0;
  for (const uint32_t size : sizes) total += size;
  if (sizes.size() <= kMaxArguments && total <= kMaxArgumentsSize) return "";
  return "kernel " + kernel + " has " + std::to_string(sizes.size()) + " arguments of " +
         std::to_string(total) + " bytes; at most " + std::to_string(kMaxArguments) + " of " +
         std::to_string(kMaxArgumentsSize) + " are allowed";
}

std::string ReadSizes(const ElfSymbol& symbol, std::vector<uint32_t>& sizes) {
  if (symbol.size % sizeof(uint32_t) != 0) return symbol.name + " is not an array of uint32_t";
  if (symbol.size / sizeof(uint32_t) > kMaxArguments) return symbol.name + " names too many arguments";
  sizes.resize(symbol.size / sizeof(uint32_t));
  if (!sizes.empty()) std::memcpy(sizes.data(), symbol.address, symbol.size);
  return "";
}

// Makes a kernel of each function that has a `.arg_sizes` object beside it.
std::string FindKernels(Code& code) {
  for (const ElfSymbol& function : code.object->symbols()) {
    if (!function.is_function) continue;
    const ElfSymbol* const sizes = code.object->Find(function.name + std::string(kArgumentSizesSuffix));
    if (sizes == nullptr || sizes->is_function) continue;
    EntryPoint entry{function.name, {}, reinterpret_cast<xpud_host_kernel_fn_t>(function.address)};
    std::string error = ReadSizes(*sizes, entry.argument_sizes);
    if (!error.empty()) return error;
    code.entries.push_back(std::move(entry));
  }
  return code.entries.empty() ? "the object has no kernel: a global function f beside an object f.arg_sizes"
                              : "";
}

std::string LoadNative(const ze_module_desc_t& desc, Code& code) {
  code.binary.assign(reinterpret_cast<const char*>(desc.pInputModule), desc.inputSize);
  std::string error;
  code.object = ElfObject::Load(code.binary, error);
  return code.object == nullptr ? error : FindKernels(code);
}

}  // namespace

ze_result_t CpuModule::Create(const CpuDevice& device, const ze_module_desc_t& desc,
                              std::unique_ptr<Module>& module, std::string& log) {
  auto code = std::make_shared<Code>();
  if (desc.format == XPUD_ZE_MODULE_FORMAT_HOST) {
    log = ReadHostTable(desc, code->entries);
  } else if (desc.format == ZE_MODULE_FORMAT_NATIVE) {
    log = LoadNative(desc, *code);
  } else {
    log =
        "this device takes HOST tables and NATIVE x86-64 objects, not format " + std::to_string(desc.format);
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  }
  for (const EntryPoint& entry : code->entries) {
    if (log.empty()) log = CheckArguments(entry.name, entry.argument_sizes);
  }
  if (!log.empty()) {
    const bool native = desc.format == ZE_MODULE_FORMAT_NATIVE;
    return native ? ZE_RESULT_ERROR_INVALID_NATIVE_BINARY : ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
  }
  module = std::make_unique<CpuModule>(device, std::move(code));
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuModule::CreateKernel(const ze_kernel_desc_t& desc, std::unique_ptr<Kernel>& kernel) {
  const EntryPoint* const entry = FindEntry(code_->entries, desc.pKernelName);
  if (entry == nullptr) return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
  kernel = std::make_unique<CpuKernel>(device_, code_, *entry);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuModule::NativeBinary(std::string& bytes) const {
  if (code_->object == nullptr) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  bytes = code_->binary;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuModule::FunctionAddress(const char* name, void*& address) const {
  const EntryPoint* const entry = FindEntry(code_->entries, name);
  if (entry == nullptr) return ZE_RESULT_ERROR_INVALID_FUNCTION_NAME;
  address = reinterpret_cast<void*>(entry->host);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuModule::GlobalAddress(const char* name, size_t& size, void*& address) const {
  const ElfSymbol* const symbol = code_->object == nullptr ? nullptr : code_->object->Find(name);
  if (symbol == nullptr || symbol->is_function) return ZE_RESULT_ERROR_INVALID_GLOBAL_NAME;
  size = symbol->size;
  address = symbol->address;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuKernel::SetGroupSize(uint32_t x, uint32_t y, uint32_t z) {
  return x == 1 && y == 1 && z == 1 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
}

void CpuKernel::GetProperties(ze_kernel_properties_t& properties) const {
  properties.requiredGroupSizeX = properties.requiredGroupSizeY = properties.requiredGroupSizeZ = 1;
  properties.maxSubgroupSize = 1;
  properties.maxNumSubgroups = 1;
}

}  // namespace xpud::drivers::cpu
