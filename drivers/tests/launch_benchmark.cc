// The overhead of a launch and of a copy through Debian's loader, with an empty kernel. XPUD_BENCHMARK_DRIVER
// selects the back end ("cpu", "cuda"; default "cpu").
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <level_zero/ze_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "drivers/tests/cuda_kernels.h"
#include "proto/base/check.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {
namespace {

void Empty(const void* const*, const uint32_t*, void*) {}

// CUDA's own copy on the list's stream, for comparison with AppendCopy.
void CopyByCuda(const void* const* args, const uint32_t*, void* scratch) {
  using Copy = int (*)(uint64_t, uint64_t, size_t, void*);
  static const auto copy = reinterpret_cast<Copy>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemcpyAsync"));
  const auto value = [&](int i) { return *static_cast<const uint64_t*>(args[i]); };
  auto* const list = static_cast<xpud_native_list_t*>(scratch);
  if (copy(value(0), value(1), value(2), list->stream) != 0) list->result = ZE_RESULT_ERROR_UNKNOWN;
}

constexpr uint32_t kSizes[] = {8, 8, 8};
constexpr xpud_host_kernel_t kKernels[] = {{"empty", Empty, 3, kSizes}, {"copy", CopyByCuda, 3, kSizes}};
constexpr xpud_host_module_t kModule = {XPUD_HOST_MODULE_VERSION, 2, kKernels};

void Must(ze_result_t result) { XPUD_CHECK(result == ZE_RESULT_SUCCESS); }

// One context, immediate list and kernel for all benchmarks.
struct Setup {
  Setup() {
    setenv("ZE_ENABLE_ALT_DRIVERS", XPUD_DRIVER_PATH, 0);
    Must(zeInit(0));
    FindDriver();
    uint32_t count = 1;
    Must(zeDeviceGet(driver, &count, &device));
    const ze_context_desc_t context_desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    Must(zeContextCreate(driver, &context_desc, &context));
    ze_command_queue_desc_t queue_desc{};
    queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    Must(zeCommandListCreateImmediate(context, device, &queue_desc, &list));
    host_kernel = KernelOf(XPUD_ZE_MODULE_FORMAT_HOST, &kModule, sizeof(kModule));
    kernel = cuda ? KernelOf(ZE_MODULE_FORMAT_NATIVE, kCudaKernels, sizeof(kCudaKernels)) : host_kernel;
    launch = Find<xpud_pfnAppendLaunchKernelWithArguments_t>("zeCommandListAppendLaunchKernelWithArguments");
    synchronize = Find<xpud_pfnCommandListHostSynchronize_t>("zeCommandListHostSynchronize");
    write = Find<xpud_pfnAppendWriteValue64_t>("xpudCommandListAppendWriteValue64");
  }
  template <typename Function>
  Function Find(const char* name) const {
    void* address = nullptr;
    Must(zeDriverGetExtensionFunctionAddress(driver, name, &address));
    return reinterpret_cast<Function>(address);
  }
  ze_kernel_handle_t KernelOf(ze_module_format_t format, const void* input, size_t size,
                              const char* name = "empty") const {
    const ze_module_desc_t module_desc{ZE_STRUCTURE_TYPE_MODULE_DESC,      nullptr, format, size,
                                       static_cast<const uint8_t*>(input), nullptr, nullptr};
    ze_module_handle_t module = nullptr;
    Must(zeModuleCreate(context, device, &module_desc, &module, nullptr));
    const ze_kernel_desc_t kernel_desc{ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, name};
    ze_kernel_handle_t made = nullptr;
    Must(zeKernelCreate(module, &kernel_desc, &made));
    return made;
  }
  void FindDriver() {
    const char* const wanted = std::getenv("XPUD_BENCHMARK_DRIVER");
    cuda = wanted != nullptr && std::strcmp(wanted, "cuda") == 0;
    uint32_t count = 0;
    Must(zeDriverGet(&count, nullptr));
    std::vector<ze_driver_handle_t> drivers(count);
    Must(zeDriverGet(&count, drivers.data()));
    XPUD_CHECK(!cuda || count > 1);
    driver = cuda ? drivers[1] : drivers[0];
  }
  void Synchronize() const { Must(synchronize(list, UINT64_MAX)); }
  void* AllocateHost(size_t size) const {
    const ze_host_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
    void* address = nullptr;
    Must(zeMemAllocHost(context, &desc, size, 0, &address));
    return address;
  }
  void* Allocate(size_t size, bool exportable = false) const {
    const ze_external_memory_export_desc_t exported{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                    ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
    const ze_device_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                          exportable ? &exported : nullptr, 0, 0};
    void* address = nullptr;
    Must(zeMemAllocDevice(context, &desc, size, 0, device, &address));
    return address;
  }

  ze_driver_handle_t driver = nullptr;
  ze_device_handle_t device = nullptr;
  ze_context_handle_t context = nullptr;
  ze_command_list_handle_t list = nullptr;
  ze_kernel_handle_t kernel = nullptr;
  ze_kernel_handle_t host_kernel = nullptr;
  bool cuda = false;
  xpud_pfnAppendLaunchKernelWithArguments_t launch = nullptr;
  xpud_pfnCommandListHostSynchronize_t synchronize = nullptr;
  xpud_pfnAppendWriteValue64_t write = nullptr;
};

const Setup& The() {
  static const Setup setup;
  return setup;
}

// A device's queue is finite: time the appends of a burst that fits, not its execution.
constexpr int kBurst = 256;

template <typename Append>
void Burst(benchmark::State& state, Append&& append) {
  using Clock = std::chrono::steady_clock;
  for (auto _ : state) {
    const auto start = Clock::now();
    for (int i = 0; i < kBurst; ++i) append();
    const auto end = Clock::now();
    The().Synchronize();
    state.SetIterationTime(std::chrono::duration<double>(end - start).count());
  }
  using benchmark::Counter;
  state.counters["append"] = Counter(kBurst, Counter::kIsIterationInvariantRate | Counter::kInvert);
}

void LaunchWithArguments(benchmark::State& state) {
  const Setup& setup = The();
  const uint64_t value = 1;
  const void* const arguments[] = {&value, &value, &value};
  const ze_group_count_t groups{static_cast<uint32_t>(state.range(0)), 1, 1};
  Burst(state, [&] {
    Must(setup.launch(setup.list, setup.kernel, groups, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr));
  });
}
BENCHMARK(LaunchWithArguments)->Arg(1)->Arg(2)->Arg(16)->UseManualTime();

// A HOST kernel that does nothing: measures our own overhead.
void LaunchHostKernel(benchmark::State& state) {
  const Setup& setup = The();
  const uint64_t value = 1;
  const void* const arguments[] = {&value, &value, &value};
  Burst(state, [&] {
    Must(setup.launch(setup.list, setup.host_kernel, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0,
                      nullptr));
  });
}
BENCHMARK(LaunchHostKernel)->UseManualTime();

// Launches back to back: if the device is slower than the host, this measures the device.
void LaunchSustained(benchmark::State& state) {
  const Setup& setup = The();
  const uint64_t value = 1;
  const void* const arguments[] = {&value, &value, &value};
  for (auto _ : state)
    Must(setup.launch(setup.list, setup.kernel, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0,
                      nullptr));
  setup.Synchronize();
}
BENCHMARK(LaunchSustained)->UseRealTime();

void LaunchAndSynchronize(benchmark::State& state) {
  const Setup& setup = The();
  const uint64_t value = 1;
  const void* const arguments[] = {&value, &value, &value};
  for (auto _ : state) {
    Must(setup.launch(setup.list, setup.kernel, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0,
                      nullptr));
    setup.Synchronize();
  }
}
BENCHMARK(LaunchAndSynchronize)->UseRealTime();

void LaunchAndSignal(benchmark::State& state) {
  const Setup& setup = The();
  const ze_event_pool_desc_t pool_desc{ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr,
                                       ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
  ze_event_pool_handle_t pool = nullptr;
  Must(zeEventPoolCreate(setup.context, &pool_desc, 0, nullptr, &pool));
  const ze_event_desc_t event_desc{ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t event = nullptr;
  Must(zeEventCreate(pool, &event_desc, &event));
  const ze_group_count_t groups{1, 1, 1};
  Burst(state,
        [&] { Must(zeCommandListAppendLaunchKernel(setup.list, setup.kernel, &groups, event, 0, nullptr)); });
  Must(zeEventDestroy(event));
  Must(zeEventPoolDestroy(pool));
}
BENCHMARK(LaunchAndSignal)->UseManualTime();

void WriteValue(benchmark::State& state) {
  const Setup& setup = The();
  auto* const word = static_cast<uint64_t*>(setup.AllocateHost(sizeof(uint64_t)));
  uint64_t value = 0;
  Burst(state, [&] { Must(setup.write(setup.list, word, ++value)); });
  Must(zeMemFree(setup.context, word));
}
BENCHMARK(WriteValue)->UseManualTime();

void AppendCopy(benchmark::State& state) {
  const Setup& setup = The();
  const size_t bytes = static_cast<size_t>(state.range(0));
  void* const source = setup.Allocate(bytes);
  void* const target = setup.Allocate(bytes);
  Burst(state,
        [&] { Must(zeCommandListAppendMemoryCopy(setup.list, target, source, bytes, nullptr, 0, nullptr)); });
  Must(zeMemFree(setup.context, source));
  Must(zeMemFree(setup.context, target));
}
BENCHMARK(AppendCopy)->Arg(64)->UseManualTime();

void AppendCopyByCuda(benchmark::State& state) {
  const Setup& setup = The();
  if (!setup.cuda) return state.SkipWithError("only on CUDA devices");
  ze_kernel_handle_t copy = setup.KernelOf(XPUD_ZE_MODULE_FORMAT_HOST, &kModule, sizeof(kModule), "copy");
  const uint64_t bytes = 64;
  void* const source = setup.Allocate(bytes);
  void* const target = setup.Allocate(bytes);
  const void* const arguments[] = {&target, &source, &bytes};
  Burst(state, [&] {
    Must(setup.launch(setup.list, copy, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr));
  });
  Must(zeMemFree(setup.context, source));
  Must(zeMemFree(setup.context, target));
}
BENCHMARK(AppendCopyByCuda)->UseManualTime();

// Completed copies: device to device, and to and from pinned memory.
void Copy(benchmark::State& state, bool host_source, bool host_target) {
  const Setup& setup = The();
  const size_t bytes = static_cast<size_t>(state.range(0));
  void* const source = host_source ? setup.AllocateHost(bytes) : setup.Allocate(bytes);
  void* const target = host_target ? setup.AllocateHost(bytes) : setup.Allocate(bytes);
  const char one = 1;
  Must(zeCommandListAppendMemoryFill(setup.list, source, &one, 1, bytes, nullptr, 0, nullptr));
  Must(zeCommandListAppendMemoryFill(setup.list, target, &one, 1, bytes, nullptr, 0, nullptr));
  setup.Synchronize();
  for (auto _ : state) {
    Must(zeCommandListAppendMemoryCopy(setup.list, target, source, bytes, nullptr, 0, nullptr));
    setup.Synchronize();
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
  Must(zeMemFree(setup.context, source));
  Must(zeMemFree(setup.context, target));
}
BENCHMARK_CAPTURE(Copy, on_device, false, false)->Arg(64)->Arg(1 << 20)->Arg(64 << 20)->UseRealTime();
BENCHMARK_CAPTURE(Copy, upload, true, false)->Arg(64 << 20)->UseRealTime();
BENCHMARK_CAPTURE(Copy, download, false, true)->Arg(64 << 20)->UseRealTime();

void AllocateAndFree(benchmark::State& state, bool exportable) {
  const Setup& setup = The();
  for (auto _ : state)
    Must(zeMemFree(setup.context, setup.Allocate(static_cast<size_t>(state.range(0)), exportable)));
}
BENCHMARK_CAPTURE(AllocateAndFree, plain, false)->Arg(4 << 10)->Arg(64 << 20);
BENCHMARK_CAPTURE(AllocateAndFree, exportable, true)->Arg(64 << 20);

// Lists whose kernels could all run at once. CUDA_DEVICE_MAX_CONNECTIONS sets the number of hardware queues
// that they share; kernels of lists that share a queue may wait for each other.
class ManyLists {
 public:
  explicit ManyLists(size_t count) {
    const Setup& setup = The();
    hold_ = setup.KernelOf(ZE_MODULE_FORMAT_NATIVE, kCudaKernels, sizeof(kCudaKernels), "hold");
    lists_.resize(count);
    ze_command_queue_desc_t desc{};
    desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    for (ze_command_list_handle_t& list : lists_)
      Must(zeCommandListCreateImmediate(setup.context, setup.device, &desc, &list));
  }
  ~ManyLists() {
    for (ze_command_list_handle_t list : lists_) Must(zeCommandListDestroy(list));
    Must(zeKernelDestroy(hold_));
  }
  // Appends `depth` kernels of `ns` to each list.
  void Hold(int depth, uint64_t ns) const {
    const void* const arguments[] = {&ns};
    for (int i = 0; i < depth; ++i) {
      for (ze_command_list_handle_t list : lists_)
        Must(The().launch(list, hold_, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr));
    }
  }
  void Synchronize() const {
    for (ze_command_list_handle_t list : lists_) Must(The().synchronize(list, UINT64_MAX));
  }

 private:
  ze_kernel_handle_t hold_ = nullptr;
  std::vector<ze_command_list_handle_t> lists_;
};

// 8 kernels of 200 us on each list, until all are done: 1.6 ms if no list waits for another.
void KernelsOfManyLists(benchmark::State& state) {
  if (!The().cuda) return state.SkipWithError("only on CUDA devices");
  const ManyLists lists(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    lists.Hold(8, 200'000);
    lists.Synchronize();
  }
}
BENCHMARK(KernelsOfManyLists)->Arg(1)->Arg(4)->Arg(8)->Arg(16)->Iterations(50)->UseRealTime();

// An empty kernel, until it is done, while other lists have 4 kernels of 200 us each.
void LaunchBesideBusyLists(benchmark::State& state) {
  if (!The().cuda) return state.SkipWithError("only on CUDA devices");
  const Setup& setup = The();
  const ManyLists lists(static_cast<size_t>(state.range(0)));
  const uint64_t value = 1;
  const void* const arguments[] = {&value, &value, &value};
  for (auto _ : state) {
    lists.Hold(4, 200'000);
    const auto start = std::chrono::steady_clock::now();
    Must(setup.launch(setup.list, setup.kernel, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0,
                      nullptr));
    setup.Synchronize();
    const auto end = std::chrono::steady_clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - start).count());
    lists.Synchronize();
  }
}
BENCHMARK(LaunchBesideBusyLists)->Arg(0)->Arg(1)->Arg(3)->Arg(7)->Arg(15)->Iterations(50)->UseManualTime();

}  // namespace
}  // namespace xpud::drivers

BENCHMARK_MAIN();
