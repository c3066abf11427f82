#include "kernels/library/testing/cuda_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "proto/base/check.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::testing {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr int kGuard = 0x5a;
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

template <typename Function>
bool Fetch(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

void Require(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "CUDA error %d: %s\n", result, what);
  std::abort();
}
#define REQUIRE(call) Require(call, #call)

}  // namespace

struct CudaDevice::Api {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*get_attribute)(int*, int, int);
  int (*context_retain)(void**, int);
  int (*context_set)(void*);
  int (*allocate)(uint64_t*, size_t);
  int (*free)(uint64_t);
  int (*upload)(uint64_t, const void*, size_t);
  int (*download)(void*, uint64_t, size_t);
  int (*fill)(uint64_t, unsigned char, size_t);
  int (*module_load)(void**, const void*);
  int (*module_function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**);
  int (*stream_create)(void**, unsigned);
  int (*synchronize)(void*);
  int (*event_create)(void**, unsigned);
  int (*event_record)(void*, void*);
  int (*event_synchronize)(void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*capture_begin)(void*, int);
  int (*capture_end)(void*, void**);
  int (*graph_instantiate)(void**, void*, unsigned long long);
  int (*graph_launch)(void*, void*);
  int (*graph_destroy)(void*);
  int (*graph_exec_destroy)(void*);

  static const Api* Get() {
    static Api api;
    static const bool loaded = [] {
      void* const l = ::dlopen("libcuda.so.1", RTLD_NOW);
      return l != nullptr && Fetch(l, "cuInit", api.init) && Fetch(l, "cuDeviceGet", api.device_get) &&
             Fetch(l, "cuDeviceGetAttribute", api.get_attribute) &&
             Fetch(l, "cuDevicePrimaryCtxRetain", api.context_retain) &&
             Fetch(l, "cuCtxSetCurrent", api.context_set) && Fetch(l, "cuMemAlloc_v2", api.allocate) &&
             Fetch(l, "cuMemFree_v2", api.free) && Fetch(l, "cuMemcpyHtoD_v2", api.upload) &&
             Fetch(l, "cuMemcpyDtoH_v2", api.download) && Fetch(l, "cuMemsetD8_v2", api.fill) &&
             Fetch(l, "cuModuleLoadData", api.module_load) &&
             Fetch(l, "cuModuleGetFunction", api.module_function) && Fetch(l, "cuLaunchKernel", api.launch) &&
             Fetch(l, "cuStreamCreate", api.stream_create) &&
             Fetch(l, "cuStreamSynchronize", api.synchronize) &&
             Fetch(l, "cuEventCreate", api.event_create) && Fetch(l, "cuEventRecord", api.event_record) &&
             Fetch(l, "cuEventSynchronize", api.event_synchronize) &&
             Fetch(l, "cuEventElapsedTime", api.event_elapsed) &&
             Fetch(l, "cuStreamBeginCapture_v2", api.capture_begin) &&
             Fetch(l, "cuStreamEndCapture", api.capture_end) &&
             Fetch(l, "cuGraphInstantiateWithFlags", api.graph_instantiate) &&
             Fetch(l, "cuGraphLaunch", api.graph_launch) && Fetch(l, "cuGraphDestroy", api.graph_destroy) &&
             Fetch(l, "cuGraphExecDestroy", api.graph_exec_destroy);
    }();
    return loaded ? &api : nullptr;
  }
};

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(bool misalign) {
  const Api* const api = Api::Get();
  if (api == nullptr) return absl::UnavailableError("libcuda.so.1 was not found");
  if (const int result = api->init(0); result != 0)
    return absl::UnavailableError(absl::StrCat("cuInit: CUDA error ", result));
  int device = 0;
  void *context = nullptr, *stream = nullptr;
  if (api->device_get(&device, 0) != 0) return absl::UnavailableError("there is no NVIDIA GPU");
  REQUIRE(api->context_retain(&context, device));
  REQUIRE(api->context_set(context));
  // Not a non-blocking stream: uploads are ordered before it only because it waits for the default stream.
  REQUIRE(api->stream_create(&stream, 0));
  int major = 0, minor = 0;
  REQUIRE(api->get_attribute(&major, kCapabilityMajor, device));
  REQUIRE(api->get_attribute(&minor, kCapabilityMinor, device));
  std::unique_ptr<CudaDevice> made(new CudaDevice(*api, context, stream, misalign));
  made->processor_ = absl::StrCat("sm_", major, minor);
  return made;
}

CudaDevice::CudaDevice(const Api& api, void* context, void* stream, bool misalign)
    : api_(api), context_(context), stream_(stream), misalign_(misalign) {
  for (void*& event : events_) REQUIRE(api_.event_create(&event, 0));
}

// The context is the process's primary one: it, its modules and streams stay.
CudaDevice::~CudaDevice() {
  for (const auto& [key, placed] : placed_) REQUIRE(api_.free(placed.allocation.address));
  for (const Allocation& workspace : workspaces_) REQUIRE(api_.free(workspace.address));
}

const Kernel* CudaDevice::Add(ModuleImage image, std::string entry) {
  images_.push_back(std::make_unique<ModuleImage>(std::move(image)));
  kernels_.push_back(std::make_unique<Kernel>(
      Kernel{static_cast<uint32_t>(kernels_.size()), images_.back().get(), std::move(entry)}));
  return kernels_.back().get();
}

const Kernel* CudaDevice::AddEntry(const Kernel& sibling, std::string entry) {
  kernels_.push_back(std::make_unique<Kernel>(
      Kernel{static_cast<uint32_t>(kernels_.size()), sibling.module, std::move(entry)}));
  return kernels_.back().get();
}

CudaDevice::Allocation CudaDevice::Allocate(size_t bytes) {
  Allocation a;
  a.bytes = bytes;
  REQUIRE(api_.allocate(&a.address, bytes + kGuardBytes));
  REQUIRE(api_.fill(a.address, kGuard, bytes + kGuardBytes));
  return a;
}

// What lies behind an allocation was not written.
void CudaDevice::CheckGuard(const Allocation& allocation) {
  unsigned char guard[kGuardBytes];
  REQUIRE(api_.download(guard, allocation.address + allocation.bytes, kGuardBytes));
  for (const unsigned char byte : guard) XPUD_CHECK(byte == kGuard);
  REQUIRE(api_.free(allocation.address));
}

Operand CudaDevice::Place(HostTensor& tensor) {
  Operand operand = tensor.operand();
  if (!operand.present) return operand;
  const auto found = placed_.find(operand.data);
  if (found == placed_.end()) {
    const size_t offset = misalign_ && ++count_ % 3 == 0 ? ops::SizeOf(operand.dtype) : 0;
    const Allocation allocation = Allocate(tensor.bytes().size() + offset);
    REQUIRE(api_.upload(allocation.address + offset, tensor.bytes().data(), tensor.bytes().size()));
    placed_[operand.data] = {&tensor, allocation, offset};
  }
  const Placed& placed = placed_[operand.data];
  operand.data = reinterpret_cast<void*>(placed.allocation.address + placed.offset);
  return operand;
}

absl::StatusOr<void*> CudaDevice::Workspace(size_t bytes) {
  workspaces_.push_back(Allocate(bytes));
  return reinterpret_cast<void*>(workspaces_.back().address);
}

void* CudaDevice::FunctionOf(const Kernel& kernel) {
  functions_.resize(kernels_.size());
  void*& function = functions_[kernel.index];
  if (function != nullptr) return function;
  void*& module = modules_[kernel.module];
  if (module == nullptr) REQUIRE(api_.module_load(&module, kernel.module->bytes.c_str()));
  REQUIRE(api_.module_function(&function, module, kernel.entry.c_str()));
  return function;
}

void CudaDevice::Enqueue(const LaunchList& launches) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch& launch = launches[i];
    if (launch.kernel().module->format == ModuleImage::Format::kHost) {
      const xpud_host_kernel_t& kernel = HostKernelOf(launch.kernel());
      xpud_native_list_t list = {stream_, context_, 0, ZE_RESULT_SUCCESS};
      const uint32_t group[3] = {};
      XPUD_CHECK(kernel.num_args == launch.argument_count());
      kernel.run(launch.arguments(), group, &list);
      Require(static_cast<int>(list.result), launch.kernel().entry.c_str());
      continue;
    }
    const auto& [x, y, z] = launch.groups();
    const auto& [lanes_x, lanes_y, lanes_z] = launch.group_size;
    REQUIRE(api_.launch(FunctionOf(launch.kernel()), x, y, z, lanes_x, lanes_y, lanes_z, 0, stream_,
                        const_cast<void**>(launch.arguments()), nullptr));
  }
}

absl::StatusOr<uint64_t> CudaDevice::Ask(const Launch& launch) {
  const xpud_host_kernel_t& kernel = HostKernelOf(launch.kernel());
  XPUD_CHECK(kernel.num_args == launch.argument_count() + 1);
  // As another process would: from bytes and offsets.
  alignas(64) std::byte bytes[Launch::kMaxArgumentBytes];
  std::copy(launch.argument_bytes().begin(), launch.argument_bytes().end(), bytes);
  std::vector<const void*> arguments;
  for (const uint16_t offset : launch.argument_offsets()) arguments.push_back(bytes + offset);
  uint64_t answer = 0;
  uint64_t* const address = &answer;
  arguments.push_back(&address);
  xpud_native_list_t list = {nullptr, context_, 0, ZE_RESULT_SUCCESS};
  const uint32_t group[3] = {};
  kernel.run(arguments.data(), group, &list);
  if (list.result != ZE_RESULT_SUCCESS)
    return absl::InternalError(absl::StrCat("0x", absl::Hex(list.result)));
  return answer;
}

void CudaDevice::Wait() { REQUIRE(api_.synchronize(stream_)); }

void CudaDevice::Run(const LaunchList& launches) {
  Enqueue(launches);
  Wait();
  for (auto& [key, placed] : placed_) {
    REQUIRE(api_.download(placed.tensor->bytes().data(), placed.allocation.address + placed.offset,
                          placed.tensor->bytes().size()));
    CheckGuard(placed.allocation);
  }
  for (const Allocation& workspace : workspaces_) CheckGuard(workspace);
  placed_.clear();
  workspaces_.clear();
}

void CudaDevice::BeginCapture() { REQUIRE(api_.capture_begin(stream_, 2)); }

double CudaDevice::TimeCapture() {
  void *graph = nullptr, *executable = nullptr;
  REQUIRE(api_.capture_end(stream_, &graph));
  REQUIRE(api_.graph_instantiate(&executable, graph, 0));
  REQUIRE(api_.graph_launch(executable, stream_));
  REQUIRE(api_.event_record(events_[0], stream_));
  REQUIRE(api_.graph_launch(executable, stream_));
  REQUIRE(api_.event_record(events_[1], stream_));
  REQUIRE(api_.event_synchronize(events_[1]));
  float milliseconds = 0;
  REQUIRE(api_.event_elapsed(&milliseconds, events_[0], events_[1]));
  REQUIRE(api_.graph_exec_destroy(executable));
  REQUIRE(api_.graph_destroy(graph));
  return milliseconds * 1e3;
}

}  // namespace xpud::kernels::testing
