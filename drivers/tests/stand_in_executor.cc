#include "drivers/tests/stand_in_executor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "drivers/tests/kernels_under_test.h"
#include "drivers/tests/placement.h"
#include "drivers/tests/stopwatch.h"

namespace xpud::drivers {
namespace {

constexpr size_t kWindow = size_t{1} << 20;
constexpr uint32_t kAdded = 1024;  // words at the start of each window that a kernel increments

void StoreNowhere(const void* const*, const uint32_t*, void*) {
  volatile uint64_t* const nowhere = reinterpret_cast<uint64_t*>(uintptr_t{0x10});
  *nowhere = 1;  // NOLINT: the fault is intended
}

void RunForEver(const void* const*, const uint32_t*, void*) {
  for (volatile uint64_t i = 0;; i = i + 1) {
  }
}

constexpr xpud_host_kernel_t kKernels[] = {{"fault", StoreNowhere, 0, nullptr},
                                           {"spin", RunForEver, 0, nullptr}};
constexpr xpud_host_module_t kModule = {XPUD_HOST_MODULE_VERSION, 2, kKernels};

// Returns the beginning, middle and end of an allocation.
std::vector<uint64_t> Windows(const Message& order) {
  const uint64_t middle = order.size / 2 / kWindow * kWindow;
  return {order.address, order.address + middle, order.address + order.size - kWindow};
}

std::vector<uint64_t> WordsOf(uint64_t address, uint64_t seed) {
  std::vector<uint64_t> words(kWindow / sizeof(uint64_t));
  for (size_t i = 0; i < words.size(); ++i) words[i] = (address + i) * 0x9e3779b97f4a7c15 + seed;
  return words;
}

}  // namespace

#define XPUD_TRY(call) \
  if (const ze_result_t tried = (call); tried != ZE_RESULT_SUCCESS) return tried

int StandInExecutor::Serve(int socket) {
  StandInExecutor executor;
  Message order = {};
  UniqueFd fd;
  while (Receive(socket, order, fd)) {
    Message answer = order;
    answer.result = executor.Run(order, answer, fd);
    if (!Send(socket, answer, order.order == Order::kAllocate ? fd.get() : -1)) return 1;
  }
  _exit(0);  // like an executor whose daemon is gone, while a kernel may still run
}

ze_result_t StandInExecutor::Run(const Message& order, Message& answer, UniqueFd& fd) {
  switch (order.order) {
    case Order::kStart:
      return Start(order.text, answer);
    case Order::kAllocate:
      return Allocate(order, answer, fd);
    case Order::kImport:
      return Import(order, answer, fd.get());
    case Order::kFree:
      return zeMemFree(context_, AtAddress(order.address));
    case Order::kWrite:
      return Write(order);
    case Order::kCheck:
      return Check(order, answer);
    case Order::kShare:
      return Share(order, answer, fd.get());
    case Order::kFault:
      return Fault();
    case Order::kSpin:
      return Spin();
  }
  return ZE_RESULT_ERROR_INVALID_ENUMERATION;
}

ze_result_t StandInExecutor::Start(const char* vendor, Message& answer) {
  cpu_ = std::strcmp(vendor, "cpu") == 0;
  const Stopwatch init;
  setenv("ZE_ENABLE_ALT_DRIVERS", XPUD_DRIVER_PATH, 0);
  XPUD_TRY(zeInit(0));
  XPUD_TRY(FindDriver(vendor, answer));
  answer.ms[0] = init.Ms();
  const Stopwatch context;
  const ze_context_desc_t context_desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  XPUD_TRY(zeContextCreate(driver_, &context_desc, &context_));
  answer.ms[1] = context.Ms();
  const Stopwatch rest;
  ze_command_queue_desc_t queue{};
  queue.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  XPUD_TRY(zeCommandListCreateImmediate(context_, device_, &queue, &list_));
  XPUD_TRY(LoadKernels());
  answer.ms[2] = rest.Ms();
  return ZE_RESULT_SUCCESS;
}

ze_result_t StandInExecutor::FindDriver(const char* vendor, Message& answer) {
  uint32_t count = 0;
  XPUD_TRY(zeDriverGet(&count, nullptr));
  std::vector<ze_driver_handle_t> drivers(count);
  XPUD_TRY(zeDriverGet(&count, drivers.data()));
  void* get_back_end = nullptr;
  void* get_report = nullptr;
  XPUD_TRY(zeDriverGetExtensionFunctionAddress(drivers[0], "xpudDriverGetBackEnd", &get_back_end));
  XPUD_TRY(zeDriverGetExtensionFunctionAddress(drivers[0], "xpudGetLoadReport", &get_report));
  for (ze_driver_handle_t driver : drivers) {
    const xpud_back_end_t* back_end = nullptr;
    XPUD_TRY(reinterpret_cast<xpud_pfnDriverGetBackEnd_t>(get_back_end)(driver, &back_end));
    if (std::strcmp(back_end->name, vendor) == 0) driver_ = driver;
  }
  const char* report = nullptr;
  XPUD_TRY(reinterpret_cast<xpud_pfnGetLoadReport_t>(get_report)(&report));
  std::snprintf(answer.text, sizeof(answer.text), "%s", report);
  if (driver_ == nullptr) return ZE_RESULT_ERROR_UNINITIALIZED;
  count = 1;
  return zeDeviceGet(driver_, &count, &device_);
}

ze_result_t StandInExecutor::LoadKernels() {
  void* launch = nullptr;
  void* synchronize = nullptr;
  XPUD_TRY(
      zeDriverGetExtensionFunctionAddress(driver_, "zeCommandListAppendLaunchKernelWithArguments", &launch));
  XPUD_TRY(zeDriverGetExtensionFunctionAddress(driver_, "zeCommandListHostSynchronize", &synchronize));
  launch_ = reinterpret_cast<xpud_pfnAppendLaunchKernelWithArguments_t>(launch);
  synchronize_ = reinterpret_cast<xpud_pfnCommandListHostSynchronize_t>(synchronize);
  const std::string_view native = KernelsFor(cpu_ ? "cpu" : "cuda");
  ze_module_handle_t module = nullptr;
  XPUD_TRY(Load(ZE_MODULE_FORMAT_NATIVE, native.data(), native.size(), module));
  XPUD_TRY(Find(module, "add", add_));
  if (cpu_) XPUD_TRY(Load(XPUD_ZE_MODULE_FORMAT_HOST, &kModule, sizeof(kModule), module));
  XPUD_TRY(Find(module, "fault", fault_));
  return Find(module, "spin", spin_);
}

ze_result_t StandInExecutor::Load(ze_module_format_t format, const void* input, size_t size,
                                  ze_module_handle_t& module) {
  const ze_module_desc_t desc{ZE_STRUCTURE_TYPE_MODULE_DESC,      nullptr, format, size,
                              static_cast<const uint8_t*>(input), nullptr, nullptr};
  return zeModuleCreate(context_, device_, &desc, &module, nullptr);
}

ze_result_t StandInExecutor::Find(ze_module_handle_t module, const char* name, ze_kernel_handle_t& kernel) {
  const ze_kernel_desc_t desc{ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, name};
  return zeKernelCreate(module, &desc, &kernel);
}

ze_result_t StandInExecutor::Allocate(const Message& order, Message& answer, UniqueFd& fd) {
  const PlacedMemory placed(order.address);
  void* address = nullptr;
  const Stopwatch watch;
  XPUD_TRY(zeMemAllocDevice(context_, &placed.desc(), order.size, 0, device_, &address));
  answer.ms[0] = watch.Ms();
  answer.address = reinterpret_cast<uint64_t>(address);
  int raw = -1;
  const ze_result_t result = ExportFd(context_, address, raw);
  fd.Reset(raw);
  return result;
}

ze_result_t StandInExecutor::Import(const Message& order, Message& answer, int fd) {
  const PlacedMemory placed(order.address, fd);
  void* address = nullptr;
  const Stopwatch watch;
  const ze_result_t result = zeMemAllocDevice(context_, &placed.desc(), order.size, 0, device_, &address);
  answer.ms[0] = watch.Ms();
  answer.address = reinterpret_cast<uint64_t>(address);
  return result;
}

ze_result_t StandInExecutor::Write(const Message& order) {
  for (const uint64_t address : Windows(order)) {
    const std::vector<uint64_t> words = WordsOf(address, order.seed);
    XPUD_TRY(
        zeCommandListAppendMemoryCopy(list_, AtAddress(address), words.data(), kWindow, nullptr, 0, nullptr));
    XPUD_TRY(Add(address, 1));
    XPUD_TRY(Finish());
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t StandInExecutor::Check(const Message& order, Message& answer) {
  answer.value = 0;
  for (const uint64_t address : Windows(order)) {
    std::vector<uint64_t> expected = WordsOf(address, order.seed);
    for (size_t i = 0; i < kAdded; ++i) ++expected[i];
    std::vector<uint64_t> words(expected.size());
    XPUD_TRY(
        zeCommandListAppendMemoryCopy(list_, words.data(), AtAddress(address), kWindow, nullptr, 0, nullptr));
    XPUD_TRY(Finish());
    for (size_t i = 0; i < words.size(); ++i) answer.value += words[i] != expected[i];
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t StandInExecutor::Share(const Message& order, Message& answer, int fd) {
  void* const mapped = mmap(AtAddress(order.address), order.size, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
  if (mapped != AtAddress(order.address)) return ZE_RESULT_ERROR_OVERLAPPING_REGIONS;
  if (!cpu_) {
    void* import = nullptr;
    XPUD_TRY(zeDriverGetExtensionFunctionAddress(driver_, "zexDriverImportExternalPointer", &import));
    const Stopwatch watch;
    XPUD_TRY(reinterpret_cast<xpud_pfnImportExternalPointer_t>(import)(driver_, mapped, order.size));
    answer.ms[0] = watch.Ms();
  }
  void* write = nullptr;
  XPUD_TRY(zeDriverGetExtensionFunctionAddress(driver_, "xpudCommandListAppendWriteValue64", &write));
  XPUD_TRY(Add(order.address, order.seed));
  uint64_t* const last = &static_cast<uint64_t*>(mapped)[order.size / sizeof(uint64_t) - 1];
  XPUD_TRY(reinterpret_cast<xpud_pfnAppendWriteValue64_t>(write)(list_, last, order.seed));
  return Finish();
}

ze_result_t StandInExecutor::Add(uint64_t address, uint64_t addend) {
  const void* const arguments[] = {&address, &addend};
  return launch_(list_, add_, {kAdded, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr);
}

ze_result_t StandInExecutor::Fault() {
  XPUD_TRY(launch_(list_, fault_, {1, 1, 1}, {1, 1, 1}, nullptr, nullptr, nullptr, 0, nullptr));
  return Finish();
}

// Replies when the kernel has been running for a while.
ze_result_t StandInExecutor::Spin() {
  const ze_host_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  void* flag = nullptr;
  XPUD_TRY(zeMemAllocHost(context_, &desc, sizeof(uint64_t), 0, &flag));
  *static_cast<uint64_t*>(flag) = 0;
  const uint32_t threads = cpu_ ? 1 : 1024;
  std::thread([=, this] {
    const void* const arguments[] = {&flag};
    static_cast<void>(
        launch_(list_, spin_, {1024, 1, 1}, {threads, 1, 1}, arguments, nullptr, nullptr, 0, nullptr));
  }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return cpu_ ? ZE_RESULT_NOT_READY : synchronize_(list_, 50'000'000);
}

ze_result_t StandInExecutor::Finish() { return synchronize_(list_, 20'000'000'000); }

}  // namespace xpud::drivers
