#include "kernels/testing/cuda_device.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// The functions of libcuda.so.1 that are used, with their versioned names. 0 is success.
struct CudaDevice::Api {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*get_attribute)(int*, int, int);
  int (*retain_context)(void**, int);
  int (*set_context)(void*);
  int (*get_error_string)(int, const char**);
  int (*allocate)(unsigned long long*, size_t);
  int (*free)(unsigned long long);
  int (*fill)(unsigned long long, unsigned char, size_t);
  int (*copy_in)(unsigned long long, const void*, size_t);
  int (*copy_out)(void*, unsigned long long, size_t);
  int (*load_module)(void**, const void*);
  int (*get_function)(void**, void*, const char*);
  int (*get_global)(unsigned long long*, size_t*, void*, const char*);
  int (*set_function_attribute)(void*, int, int);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**);
  int (*create_stream)(void**, unsigned);
  int (*synchronize)(void*);
  int (*create_event)(void**, unsigned);
  int (*record_event)(void*, void*);
  int (*elapsed)(float*, void*, void*);
  int (*destroy_event)(void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch_graph)(void*, void*);
  int (*destroy_graph)(void*);
  int (*destroy_instance)(void*);
  int (*create_link)(unsigned, int*, void**, void**);
  int (*add_data)(void*, int, void*, size_t, const char*, unsigned, int*, void**);
  int (*complete_link)(void*, void**, size_t*);
  int (*destroy_link)(void*);

  std::string ErrorOf(int code) const {
    const char* text = nullptr;
    get_error_string(code, &text);
    return text == nullptr ? absl::StrCat("CUDA error ", code) : text;
  }
  // A failure of the device ends the test.
  void Check(int code, const char* what) const {
    if (code == 0) return;
    std::fprintf(stderr, "%s: %s\n", what, ErrorOf(code).c_str());
    std::abort();
  }
};

namespace {

unsigned long long AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
constexpr int kMultiprocessors = 16;                         // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kMaxLocalBytes = 8;                 // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kThreadLocal = 1;                   // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int kInputPtx = 1;                      // CU_JIT_INPUT_PTX
constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // CU_JIT_ERROR_LOG_BUFFER, *_SIZE_BYTES

}  // namespace

absl::StatusOr<CudaDevice*> CudaDevice::Get() {
  static CudaDevice* const device = new CudaDevice;
  static const absl::Status opened = device->Open();
  RETURN_IF_ERROR(opened);
  return device;
}

absl::Status CudaDevice::Open() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError("no GPU: libcuda.so.1 is not installed");
  api_ = std::make_unique<Api>();
  bool found = true;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    found &= function != nullptr;
  };
  load(api_->init, "cuInit");
  load(api_->device_get, "cuDeviceGet");
  load(api_->get_attribute, "cuDeviceGetAttribute");
  load(api_->retain_context, "cuDevicePrimaryCtxRetain");
  load(api_->set_context, "cuCtxSetCurrent");
  load(api_->get_error_string, "cuGetErrorString");
  load(api_->allocate, "cuMemAlloc_v2");
  load(api_->free, "cuMemFree_v2");
  load(api_->fill, "cuMemsetD8_v2");
  load(api_->copy_in, "cuMemcpyHtoD_v2");
  load(api_->copy_out, "cuMemcpyDtoH_v2");
  load(api_->load_module, "cuModuleLoadData");
  load(api_->get_function, "cuModuleGetFunction");
  load(api_->get_global, "cuModuleGetGlobal_v2");
  load(api_->set_function_attribute, "cuFuncSetAttribute");
  load(api_->launch, "cuLaunchKernel");
  load(api_->create_stream, "cuStreamCreate");
  load(api_->synchronize, "cuStreamSynchronize");
  load(api_->create_event, "cuEventCreate");
  load(api_->record_event, "cuEventRecord");
  load(api_->elapsed, "cuEventElapsedTime");
  load(api_->destroy_event, "cuEventDestroy_v2");
  load(api_->begin_capture, "cuStreamBeginCapture_v2");
  load(api_->end_capture, "cuStreamEndCapture");
  load(api_->instantiate, "cuGraphInstantiateWithFlags");
  load(api_->launch_graph, "cuGraphLaunch");
  load(api_->destroy_graph, "cuGraphDestroy");
  load(api_->destroy_instance, "cuGraphExecDestroy");
  load(api_->create_link, "cuLinkCreate_v2");
  load(api_->add_data, "cuLinkAddData_v2");
  load(api_->complete_link, "cuLinkComplete");
  load(api_->destroy_link, "cuLinkDestroy");
  if (!found) return absl::NotFoundError("no GPU: libcuda.so.1 is too old");
  int device = 0, major = 0, minor = 0;
  if (const int code = api_->init(0); code != 0)
    return absl::NotFoundError(absl::StrCat("no GPU: ", api_->ErrorOf(code)));
  if (api_->device_get(&device, 0) != 0) return absl::NotFoundError("no GPU: no device");
  api_->Check(api_->get_attribute(&major, kCapabilityMajor, device), "cuDeviceGetAttribute");
  api_->Check(api_->get_attribute(&minor, kCapabilityMinor, device), "cuDeviceGetAttribute");
  processor_ = absl::StrCat("sm_", major, minor);
  api_->Check(api_->get_attribute(&multiprocessors_, kMultiprocessors, device), "cuDeviceGetAttribute");
  api_->Check(api_->retain_context(&context_, device), "cuDevicePrimaryCtxRetain");
  api_->Check(api_->set_context(context_), "cuCtxSetCurrent");
  api_->Check(api_->create_stream(&stream_, 0), "cuStreamCreate");
  return absl::OkStatus();
}

void* CudaDevice::Allocate(size_t bytes) {
  unsigned long long address = 0;
  api_->Check(api_->allocate(&address, bytes), "cuMemAlloc");
  return reinterpret_cast<void*>(address);
}

void CudaDevice::Free(void* memory) { api_->Check(api_->free(AddressOf(memory)), "cuMemFree"); }

void CudaDevice::Fill(void* memory, unsigned char value, size_t bytes) {
  api_->Check(api_->fill(AddressOf(memory), value, bytes), "cuMemsetD8");
}

void CudaDevice::CopyIn(void* to, const void* from, size_t bytes) {
  api_->Check(api_->copy_in(AddressOf(to), from, bytes), "cuMemcpyHtoD");
}

void CudaDevice::CopyOut(void* to, const void* from, size_t bytes) {
  api_->Check(api_->copy_out(to, AddressOf(from), bytes), "cuMemcpyDtoH");
}

void* CudaDevice::Load(const Kernel& kernel) {
  void*& function = functions_[absl::StrCat(kernel.entry, "|", kernel.module->bytes)];
  if (function != nullptr) return function;
  void*& module = modules_[kernel.module->bytes];
  if (module == nullptr) {
    const int loaded = api_->load_module(&module, kernel.module->bytes.c_str());
    if (loaded != 0) std::fprintf(stderr, "%s\n", kernel.module->bytes.c_str());
    api_->Check(loaded, "cuModuleLoadData");
  }
  api_->Check(api_->get_function(&function, module, kernel.entry.c_str()), "cuModuleGetFunction");
  unsigned long long constant = 0;
  size_t size = 0;
  if (api_->get_global(&constant, &size, module, (kernel.entry + "_local_bytes").c_str()) == 0) {
    unsigned& bytes = local_bytes_[function];
    api_->Check(api_->copy_out(&bytes, constant, sizeof(bytes)), "cuMemcpyDtoH");
    api_->Check(api_->set_function_attribute(function, kMaxLocalBytes, static_cast<int>(bytes)),
                "cuFuncSetAttribute");
  }
  return function;
}

void CudaDevice::Launch(void* function, const xpud::kernels::Launch& launch) {
  const auto& groups = launch.groups();
  const auto& size = launch.group_size;
  const auto local = local_bytes_.find(function);
  api_->Check(api_->launch(function, groups[0], groups[1], groups[2], size[0], size[1], size[2],
                           local == local_bytes_.end() ? 0 : local->second, stream_,
                           const_cast<void**>(launch.arguments()), nullptr),
              launch.kernel().entry.c_str());
}

void CudaDevice::Launch(const LaunchList& launches) {
  for (size_t i = 0; i < launches.size(); ++i) Launch(Load(launches[i].kernel()), launches[i]);
}

void CudaDevice::MakeCurrent() { api_->Check(api_->set_context(context_), "cuCtxSetCurrent"); }

void CudaDevice::Synchronize() { api_->Check(api_->synchronize(stream_), "cuStreamSynchronize"); }

float CudaDevice::Time(std::span<const LaunchList> launches, int times) {
  for (const LaunchList& list : launches) Launch(list);
  Synchronize();
  const float all = Time([&] {
    for (int i = 0; i < times; ++i) Launch(launches[static_cast<size_t>(i) % launches.size()]);
  });
  return all / static_cast<float>(times);
}

float CudaDevice::Time(absl::FunctionRef<void()> enqueue) {
  void *graph = nullptr, *instance = nullptr, *begin = nullptr, *end = nullptr;
  api_->Check(api_->begin_capture(stream_, kThreadLocal), "cuStreamBeginCapture");
  enqueue();
  api_->Check(api_->end_capture(stream_, &graph), "cuStreamEndCapture");
  api_->Check(api_->instantiate(&instance, graph, 0), "cuGraphInstantiate");
  api_->Check(api_->create_event(&begin, 0), "cuEventCreate");
  api_->Check(api_->create_event(&end, 0), "cuEventCreate");
  float best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    api_->Check(api_->record_event(begin, stream_), "cuEventRecord");
    api_->Check(api_->launch_graph(instance, stream_), "cuGraphLaunch");
    api_->Check(api_->record_event(end, stream_), "cuEventRecord");
    Synchronize();
    float milliseconds = 0;
    api_->Check(api_->elapsed(&milliseconds, begin, end), "cuEventElapsedTime");
    if (repeat == 0 || milliseconds < best) best = milliseconds;
  }
  api_->Check(api_->destroy_event(begin), "cuEventDestroy");
  api_->Check(api_->destroy_event(end), "cuEventDestroy");
  api_->Check(api_->destroy_instance(instance), "cuGraphExecDestroy");
  api_->Check(api_->destroy_graph(graph), "cuGraphDestroy");
  return best;
}

absl::StatusOr<std::string> CudaDevice::Assemble(const std::string& ptx) {
  api_->Check(api_->set_context(context_), "cuCtxSetCurrent");
  char log[4096] = {};
  int options[] = {kErrorLog, kErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  void* link = nullptr;
  api_->Check(api_->create_link(2, options, values, &link), "cuLinkCreate");
  int code = api_->add_data(link, kInputPtx, const_cast<char*>(ptx.c_str()), ptx.size() + 1, "kernel", 0,
                            nullptr, nullptr);
  void* image = nullptr;
  size_t size = 0;
  if (code == 0) code = api_->complete_link(link, &image, &size);
  std::string cubin;
  if (code == 0) cubin.assign(static_cast<const char*>(image), size);
  api_->Check(api_->destroy_link(link), "cuLinkDestroy");
  if (code != 0)
    return absl::InternalError(absl::StrCat("PTX does not assemble: ", api_->ErrorOf(code), " ", log));
  return cubin;
}

}  // namespace xpud::kernels
