// What a launch and a copy cost through Debian's loader: the empty kernel is all overhead.
#include <benchmark/benchmark.h>
#include <level_zero/ze_api.h>

#include <cstdlib>

#include "proto/base/check.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers::cpu {
namespace {

void Empty(const void* const*, const uint32_t*, void*) {}

constexpr uint32_t kSizes[] = {8, 8, 8};
constexpr xpud_host_kernel_t kKernels[] = {{"empty", Empty, 3, kSizes}};
constexpr xpud_host_module_t kModule = {XPUD_HOST_MODULE_VERSION, 1, kKernels};

void Must(ze_result_t result) { XPUD_CHECK(result == ZE_RESULT_SUCCESS); }

// One context, immediate list and kernel for all benchmarks.
struct Setup {
  Setup() {
    setenv("ZE_ENABLE_ALT_DRIVERS", XPUD_DRIVER_PATH, 1);
    Must(zeInit(0));
    uint32_t count = 1;
    Must(zeDriverGet(&count, &driver));
    Must(zeDeviceGet(driver, &count, &device));
    const ze_context_desc_t context_desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    Must(zeContextCreate(driver, &context_desc, &context));
    ze_command_queue_desc_t queue_desc{};
    queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    Must(zeCommandListCreateImmediate(context, device, &queue_desc, &list));
    const ze_module_desc_t module_desc{ZE_STRUCTURE_TYPE_MODULE_DESC,
                                       nullptr,
                                       XPUD_ZE_MODULE_FORMAT_HOST,
                                       sizeof(kModule),
                                       reinterpret_cast<const uint8_t*>(&kModule),
                                       nullptr,
                                       nullptr};
    ze_module_handle_t module = nullptr;
    Must(zeModuleCreate(context, device, &module_desc, &module, nullptr));
    const ze_kernel_desc_t kernel_desc{ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, "empty"};
    Must(zeKernelCreate(module, &kernel_desc, &kernel));
    void* address = nullptr;
    Must(zeDriverGetExtensionFunctionAddress(driver, "zeCommandListAppendLaunchKernelWithArguments",
                                             &address));
    launch = reinterpret_cast<xpud_pfnAppendLaunchKernelWithArguments_t>(address);
  }
  void* Allocate(size_t size) const {
    const ze_device_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
    void* address = nullptr;
    Must(zeMemAllocDevice(context, &desc, size, 0, device, &address));
    return address;
  }

  ze_driver_handle_t driver = nullptr;
  ze_device_handle_t device = nullptr;
  ze_context_handle_t context = nullptr;
  ze_command_list_handle_t list = nullptr;
  ze_kernel_handle_t kernel = nullptr;
  xpud_pfnAppendLaunchKernelWithArguments_t launch = nullptr;
};

const Setup& The() {
  static const Setup setup;
  return setup;
}

void LaunchWithArguments(benchmark::State& state) {
  const Setup& setup = The();
  const uint64_t value = 1;
  const void* const arguments[] = {&value, &value, &value};
  const ze_group_count_t groups{static_cast<uint32_t>(state.range(0)), 1, 1};
  for (auto _ : state) {
    Must(setup.launch(setup.list, setup.kernel, groups, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr));
  }
}
BENCHMARK(LaunchWithArguments)->Arg(1)->Arg(2)->Arg(16)->UseRealTime();

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
  for (auto _ : state)
    Must(zeCommandListAppendLaunchKernel(setup.list, setup.kernel, &groups, event, 0, nullptr));
  Must(zeEventDestroy(event));
  Must(zeEventPoolDestroy(pool));
}
BENCHMARK(LaunchAndSignal);

void Copy(benchmark::State& state) {
  const Setup& setup = The();
  const size_t bytes = static_cast<size_t>(state.range(0));
  void* const source = setup.Allocate(bytes);
  void* const target = setup.Allocate(bytes);
  const char one = 1;
  Must(zeCommandListAppendMemoryFill(setup.list, source, &one, 1, bytes, nullptr, 0, nullptr));
  Must(zeCommandListAppendMemoryFill(setup.list, target, &one, 1, bytes, nullptr, 0, nullptr));
  for (auto _ : state) {
    Must(zeCommandListAppendMemoryCopy(setup.list, target, source, bytes, nullptr, 0, nullptr));
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
  Must(zeMemFree(setup.context, source));
  Must(zeMemFree(setup.context, target));
}
BENCHMARK(Copy)->Arg(64)->Arg(256 << 10)->Arg(1 << 20)->Arg(64 << 20)->UseRealTime();

void AllocateTouchFree(benchmark::State& state) {
  const Setup& setup = The();
  const size_t bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    char* const address = static_cast<char*>(setup.Allocate(bytes));
    for (size_t i = 0; i < bytes; i += 4096) address[i] = 1;
    Must(zeMemFree(setup.context, address));
  }
}
BENCHMARK(AllocateTouchFree)->Arg(4 << 10)->Arg(64 << 20);

}  // namespace
}  // namespace xpud::drivers::cpu

BENCHMARK_MAIN();
