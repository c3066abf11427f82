#include "drivers/cuda/module.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "drivers/cuda/cubin.h"

namespace xpud::drivers::cuda {
namespace {

constexpr size_t kLogBytes = 16 << 10;
constexpr size_t kMaxArguments = 4096;

// Receives the messages of CUDA's compiler.
struct CompilerLog {
  static constexpr unsigned kOptions = 4;

  std::string Text() const { return std::string(errors.c_str()) + info.c_str(); }

  std::string info = std::string(kLogBytes, '\0');
  std::string errors = std::string(kLogBytes, '\0');
  CUjit_option options[kOptions] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[kOptions] = {info.data(), reinterpret_cast<void*>(kLogBytes - 1), errors.data(),
                            reinterpret_cast<void*>(kLogBytes - 1)};
};

// CUDA's linker ignores setmaxnreg, and makes the tensor instructions of Hopper wait for each other in
// kernels that call functions (as divisions do). So text with such instructions is loaded without it; then
// CUDA does not give out the cubin.
bool IsLoadedWhole(std::string_view ptx) { return ptx.find("wgmma.") != std::string_view::npos; }

CUresult LoadPtx(const std::string& source, CUmodule& module, std::string& log) {
  CompilerLog messages;
  const CUresult result = cu.cuModuleLoadDataEx(&module, source.c_str(), CompilerLog::kOptions,
                                                messages.options, messages.values);
  log += messages.Text();
  return result;
}

// Compiles PTX to a cubin for the current context's device. `log` receives the compiler's messages.
CUresult CompilePtx(const std::string& source, std::string& cubin, std::string& log) {
  CompilerLog messages;
  CUlinkState state = nullptr;
  CUresult result = cu.cuLinkCreate(CompilerLog::kOptions, messages.options, messages.values, &state);
  if (result != CUDA_SUCCESS) return result;
  result = cu.cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(source.c_str()), source.size() + 1,
                            "module", 0, nullptr, nullptr);
  void* out = nullptr;
  size_t size = 0;
  if (result == CUDA_SUCCESS) result = cu.cuLinkComplete(state, &out, &size);
  if (result == CUDA_SUCCESS) cubin.assign(static_cast<const char*>(out), size);
  static_cast<void>(cu.cuLinkDestroy(state));
  log += messages.Text();
  return result;
}

CUresult ReadArguments(CUfunction function, std::vector<uint32_t>& sizes) {
  while (sizes.size() < kMaxArguments) {
    size_t offset = 0;
    size_t size = 0;
    const CUresult result = cu.cuFuncGetParamInfo(function, sizes.size(), &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // there are no more
    if (result != CUDA_SUCCESS) return result;
    sizes.push_back(static_cast<uint32_t>(size));
  }
  return CUDA_SUCCESS;
}

// A kernel whose groups need more local memory than its code may declare (48 KiB) states it in a constant of
// the module, KERNEL_local_bytes (uint32_t).
CUresult ReadLocalBytes(CUmodule module, Entry& entry) {
  CUdeviceptr constant = 0;
  size_t size = 0;
  CUresult result =
      cu.cuModuleGetGlobal(&constant, &size, module, (std::string(entry.name) + "_local_bytes").c_str());
  if (result == CUDA_ERROR_NOT_FOUND) return CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && size != sizeof(entry.local_bytes)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = cu.cuMemcpyDtoH(&entry.local_bytes, constant, size);
  if (result == CUDA_SUCCESS)
    result = cu.cuFuncSetAttribute(entry.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(entry.local_bytes));
  return result;
}

// Loads each kernel now. CUDA would load it at its first launch, where loading may wait for running work.
CUresult ReadKernels(Code& code) {
  unsigned count = 0;
  CUresult result = cu.cuModuleGetFunctionCount(&count, code.module);
  if (result != CUDA_SUCCESS) return result;
  std::vector<CUfunction> functions(count);
  result = cu.cuModuleEnumerateFunctions(functions.data(), count, code.module);
  for (CUfunction function : functions) {
    const char* name = nullptr;
    Entry entry;
    if (result == CUDA_SUCCESS) result = cu.cuFuncLoad(function);
    if (result == CUDA_SUCCESS) result = cu.cuFuncGetName(&name, function);
    if (result == CUDA_SUCCESS) result = ReadArguments(function, entry.argument_sizes);
    if (result != CUDA_SUCCESS) return result;
    entry.name = name;
    entry.function = function;
    result = ReadLocalBytes(code.module, entry);
    if (result != CUDA_SUCCESS) return result;
    code.entries.push_back(std::move(entry));
  }
  return result;
}

ze_result_t LoadNative(const ze_module_desc_t& desc, Code& code, std::string& log) {
  const std::string_view bytes(reinterpret_cast<const char*>(desc.pInputModule), desc.inputSize);
  const bool elf = IsElf(bytes);
  const std::string refusal = elf ? CheckCubin(bytes) : CheckPtx(bytes);
  if (!refusal.empty()) {
    log = refusal;
    return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
  }
  code.device.MakeCurrent();
  CUresult result = CUDA_SUCCESS;
  if (elf || IsLoadedWhole(bytes)) {
    code.binary = bytes;
  } else {
    result = CompilePtx(std::string(bytes), code.binary, log);
  }
  if (result == CUDA_SUCCESS)
    result = IsElf(code.binary) ? cu.cuModuleLoadData(&code.module, code.binary.data())
                                : LoadPtx(code.binary, code.module, log);
  if (result == CUDA_SUCCESS) result = ReadKernels(code);
  if (result != CUDA_SUCCESS) log += (log.empty() ? "" : "\n") + Describe(result);
  return code.device.Check(result);
}

ze_result_t LoadHost(const ze_module_desc_t& desc, Code& code, std::string& log) {
  std::vector<EntryPoint> table;
  log = ReadHostTable(desc, table);
  for (EntryPoint& kernel : table) code.entries.push_back({std::move(kernel), nullptr});
  return log.empty() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
}

}  // namespace

std::shared_ptr<const Code> LoadedText::Find(const ze_module_desc_t& desc) {
  const std::string_view text(reinterpret_cast<const char*>(desc.pInputModule), desc.inputSize);
  if (desc.format != ZE_MODULE_FORMAT_NATIVE || IsElf(text)) return nullptr;
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& code) { return code->binary == text; });
  return found == kept_.end() ? nullptr : *found;
}

void LoadedText::Keep(std::shared_ptr<const Code> code) {
  constexpr size_t kMaxKept = 32;
  MutexLock lock(mutex_);
  kept_.push_back(std::move(code));
  if (kept_.size() > kMaxKept) kept_.pop_front();
}

Code::~Code() {
  if (module == nullptr) return;
  device.MakeCurrent();
  static_cast<void>(device.Check(cu.cuModuleUnload(module)));
}

ze_result_t CudaModule::Create(CudaDevice& device, const ze_module_desc_t& desc,
                               std::unique_ptr<Module>& module, std::string& log) {
  if (auto kept = device.loaded_text().Find(desc); kept != nullptr) {
    module = std::make_unique<CudaModule>(device.driver(), std::move(kept));
    return ZE_RESULT_SUCCESS;
  }
  auto code = std::make_shared<Code>(device);
  ze_result_t result = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  if (desc.format == XPUD_ZE_MODULE_FORMAT_HOST) {
    result = LoadHost(desc, *code, log);
  } else if (desc.format == ZE_MODULE_FORMAT_NATIVE) {
    result = LoadNative(desc, *code, log);
  } else {
    log = "this device takes HOST tables and NATIVE cubins or PTX, not format " + std::to_string(desc.format);
  }
  if (result != ZE_RESULT_SUCCESS) return result;
  if (desc.format == ZE_MODULE_FORMAT_NATIVE && !IsElf(code->binary)) device.loaded_text().Keep(code);
  module = std::make_unique<CudaModule>(device.driver(), std::move(code));
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaModule::CreateKernel(const ze_kernel_desc_t& desc, std::unique_ptr<Kernel>& kernel) {
  const Entry* const entry = FindEntry(code_->entries, desc.pKernelName);
  if (entry == nullptr) return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
  kernel = std::make_unique<CudaKernel>(driver(), code_, *entry);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaModule::NativeBinary(std::string& bytes) const {
  if (code_->module == nullptr) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  bytes = code_->binary;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaModule::FunctionAddress(const char* name, void*& address) const {
  const Entry* const entry = FindEntry(code_->entries, name);
  if (entry == nullptr) return ZE_RESULT_ERROR_INVALID_FUNCTION_NAME;
  // CUDA does not expose addresses of device code that a kernel could call.
  if (entry->host == nullptr) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  address = reinterpret_cast<void*>(entry->host);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaModule::GlobalAddress(const char* name, size_t& size, void*& address) const {
  if (code_->module == nullptr) return ZE_RESULT_ERROR_INVALID_GLOBAL_NAME;
  code_->device.MakeCurrent();
  CUdeviceptr global = 0;
  const CUresult result = cu.cuModuleGetGlobal(&global, &size, code_->module, name);
  if (result == CUDA_ERROR_NOT_FOUND) return ZE_RESULT_ERROR_INVALID_GLOBAL_NAME;
  address = reinterpret_cast<void*>(global);
  return code_->device.Check(result);
}

uint32_t CudaKernel::Attribute(CUfunction_attribute attribute) const {
  int value = 0;
  code_->device.MakeCurrent();
  return cu.cuFuncGetAttribute(&value, attribute, entry_.function) == CUDA_SUCCESS
             ? static_cast<uint32_t>(value)
             : 0;
}

ze_result_t CudaKernel::SetGroupSize(uint32_t x, uint32_t y, uint32_t z) {
  constexpr uint64_t kMaxEdge = 1024;
  if (x == 0 || y == 0 || z == 0 || x > kMaxEdge || y > kMaxEdge || z > kMaxEdge)
    return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
  const uint64_t limit =
      entry_.function == nullptr ? 1024 : Attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (uint64_t{x} * y * z > limit) return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
  group_size_ = {x, y, z};
  return ZE_RESULT_SUCCESS;
}

void CudaKernel::SuggestGroupSize(const uint32_t global[3], uint32_t group[3]) const {
  const uint32_t limit = entry_.function == nullptr ? 1 : Attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  uint32_t left = std::clamp(limit, 1u, 256u);
  for (int i = 0; i < 3; ++i) {
    // The largest divisor of the global size that fits.
    group[i] = std::clamp(std::min(global[i], left), 1u, i == 2 ? 64u : 256u);
    while (global[i] % group[i] != 0) --group[i];
    left /= group[i];
  }
}

uint32_t CudaKernel::MaxCooperativeGroups() const {
  if (entry_.function == nullptr) return 1;
  int groups = 0;
  code_->device.MakeCurrent();
  const uint32_t threads = group_size_.groupSizeX * group_size_.groupSizeY * group_size_.groupSizeZ;
  const CUresult result = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &groups, entry_.function, static_cast<int>(threads), entry_.local_bytes);
  return result == CUDA_SUCCESS ? static_cast<uint32_t>(groups) * code_->device.multiprocessors() : 0;
}

void CudaKernel::GetProperties(ze_kernel_properties_t& properties) const {
  if (entry_.function == nullptr) return;
  properties.localMemSize = Attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) + entry_.local_bytes;
  properties.privateMemSize = Attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  properties.maxSubgroupSize = 32;
  properties.maxNumSubgroups = Attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) / 32;
}

}  // namespace xpud::drivers::cuda
