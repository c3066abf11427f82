// Tests of features that only the CUDA back end has, on a GPU, through Debian's loader.
#include <dlfcn.h>
#include <level_zero/zes_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <thread>

#include "drivers/tests/cuda_kernels.h"
#include "drivers/tests/driver_under_test.h"
#include "proto/base/clock.h"

namespace xpud::drivers {
namespace {

// Acts like a vendor's library: enqueues on the list's stream.
void FillBySomeLibrary(const void* const* args, const uint32_t*, void* scratch) {
  auto* const list = static_cast<xpud_native_list_t*>(scratch);
  using Memset = int (*)(unsigned long long, unsigned char, size_t, void*);
  static const auto memset =
      reinterpret_cast<Memset>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemsetD8Async"));
  const auto target = *static_cast<const unsigned long long*>(args[0]);
  const auto size = *static_cast<const uint64_t*>(args[1]);
  if (memset == nullptr || memset(target, 7, size, list->stream) != 0) list->result = ZE_RESULT_ERROR_UNKNOWN;
}

void Refuse(const void* const*, const uint32_t*, void* scratch) {
  static_cast<xpud_native_list_t*>(scratch)->result = ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
}

constexpr uint32_t kFillSizes[] = {8, 8};
constexpr xpud_host_kernel_t kHostKernels[] = {{"fill", FillBySomeLibrary, 2, kFillSizes},
                                               {"refuse", Refuse, 0, nullptr}};
constexpr xpud_host_module_t kHostModule = {XPUD_HOST_MODULE_VERSION, 2, kHostKernels};

class CudaDriverTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (driver_ == nullptr) return;
    list_ = ImmediateList();
  }
  void TearDown() override {
    if (list_ != nullptr) EXPECT_EQ(zeCommandListDestroy(list_), ZE_RESULT_SUCCESS);
    DriverTest::TearDown();
  }
  ze_module_handle_t Ptx() { return Module(ZE_MODULE_FORMAT_NATIVE, kCudaKernels, sizeof(kCudaKernels)); }
  void* Exportable(size_t size) {
    const ze_external_memory_export_desc_t exported{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                    ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
    const ze_device_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, &exported, 0, 0};
    void* address = nullptr;
    EXPECT_EQ(zeMemAllocDevice(context_, &desc, size, 0, device_, &address), ZE_RESULT_SUCCESS);
    return address;
  }
  void Copy(void* to, const void* from, size_t size) {
    ASSERT_EQ(zeCommandListAppendMemoryCopy(list_, to, from, size, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  }

  ze_command_list_handle_t list_ = nullptr;
};

TEST_P(CudaDriverTest, DescribesTheGpu) {
  ze_device_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  ASSERT_EQ(zeDeviceGetProperties(device_, &properties), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.type, ZE_DEVICE_TYPE_GPU);
  EXPECT_EQ(properties.vendorId, 0x10deu);
  EXPECT_GE(properties.numEUsPerSubslice, 8u);
  EXPECT_EQ(properties.physicalEUSimdWidth, 32u);
  ze_device_module_properties_t module{};
  module.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES;
  ASSERT_EQ(zeDeviceGetModuleProperties(device_, &module), ZE_RESULT_SUCCESS);
  const std::string target(reinterpret_cast<const char*>(module.nativeKernelSupported.id));
  EXPECT_EQ(target.substr(0, 3), "sm_");
  std::printf("%s, %s, PCI id %04x, %u multiprocessors of %u warps, %lu MiB\n", properties.name,
              target.c_str(), properties.deviceId, properties.numEUsPerSubslice, properties.numThreadsPerEU,
              properties.maxMemAllocSize >> 20);
}

TEST_P(CudaDriverTest, SensorsAreRead) {
  const auto device = reinterpret_cast<zes_device_handle_t>(device_);
  uint32_t count = 0;
  ASSERT_EQ(zesDeviceEnumMemoryModules(device, &count, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(count, 1u);
  zes_mem_handle_t memory = nullptr;
  ASSERT_EQ(zesDeviceEnumMemoryModules(device, &count, &memory), ZE_RESULT_SUCCESS);
  zes_mem_state_t state{};
  state.stype = ZES_STRUCTURE_TYPE_MEM_STATE;
  ASSERT_EQ(zesMemoryGetState(memory, &state), ZE_RESULT_SUCCESS);
  const uint64_t free = state.free;
  void* const held = Exportable(size_t{1} << 30);
  ASSERT_EQ(zesMemoryGetState(memory, &state), ZE_RESULT_SUCCESS);
  EXPECT_EQ(free - state.free, uint64_t{1} << 30);
  EXPECT_EQ(zeMemFree(context_, held), ZE_RESULT_SUCCESS);
  zes_temp_handle_t sensor = nullptr;
  ASSERT_EQ(zesDeviceEnumTemperatureSensors(device, &count, &sensor), ZE_RESULT_SUCCESS);
  double celsius = 0;
  ASSERT_EQ(zesTemperatureGetState(sensor, &celsius), ZE_RESULT_SUCCESS);
  EXPECT_GT(celsius, 5);
  EXPECT_LT(celsius, 110);
  zes_pwr_handle_t power = nullptr;
  ASSERT_EQ(zesDeviceEnumPowerDomains(device, &count, &power), ZE_RESULT_SUCCESS);
  zes_power_energy_counter_t before{};
  zes_power_energy_counter_t after{};
  ASSERT_EQ(zesPowerGetEnergyCounter(power, &before), ZE_RESULT_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_EQ(zesPowerGetEnergyCounter(power, &after), ZE_RESULT_SUCCESS);
  const double watts = static_cast<double>(after.energy - before.energy) /
                       static_cast<double>(after.timestamp - before.timestamp);
  EXPECT_GT(watts, 10);
  EXPECT_LT(watts, 1500);
  std::printf("%.0f W, %.0f degrees, %lu of %lu MiB free\n", watts, celsius, state.free >> 20,
              state.size >> 20);
}

TEST_P(CudaDriverTest, PtxModuleRunsOnExportableMemory) {
  ze_module_handle_t module = Ptx();
  ze_kernel_handle_t scale = Kernel(module, "scale");
  constexpr uint32_t kCount = 1 << 20;
  std::vector<float> host(kCount);
  std::iota(host.begin(), host.end(), 0.0f);
  auto* const in = static_cast<float*>(Exportable(kCount * 4));
  auto* const out = static_cast<float*>(Exportable(kCount * 4));
  Copy(in, host.data(), kCount * 4);
  const float factor = 0.5f;
  const void* const arguments[] = {&out, &in, &factor};
  ASSERT_EQ(launch_(list_, scale, {kCount / 256, 1, 1}, {256, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  std::fill(host.begin(), host.end(), -1.0f);
  Copy(host.data(), out, kCount * 4);
  Finish(list_);
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(host[i], 0.5f * static_cast<float>(i)) << i;
  EXPECT_EQ(zeMemFree(context_, in), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(scale), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

TEST_P(CudaDriverTest, NativeBinaryOfPtxIsACubin) {
  ze_module_handle_t module = Ptx();
  size_t size = 0;
  ASSERT_EQ(zeModuleGetNativeBinary(module, &size, nullptr), ZE_RESULT_SUCCESS);
  std::string cubin(size, '\0');
  ASSERT_EQ(zeModuleGetNativeBinary(module, &size, reinterpret_cast<uint8_t*>(cubin.data())),
            ZE_RESULT_SUCCESS);
  EXPECT_EQ(cubin.substr(0, 4),
            "\x7f"
            "ELF");
  ze_module_handle_t again = Module(ZE_MODULE_FORMAT_NATIVE, cubin.data(), cubin.size());
  uint32_t count = 0;
  ASSERT_EQ(zeModuleGetKernelNames(again, &count, nullptr), ZE_RESULT_SUCCESS);
  EXPECT_EQ(count, 9u);
  EXPECT_EQ(zeModuleDestroy(again), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

TEST_P(CudaDriverTest, GroupsHaveMoreLocalMemoryThanCodeMayDeclare) {
  ze_module_handle_t module = Ptx();
  ze_kernel_handle_t distant = Kernel(module, "distant");
  ze_kernel_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES;
  ASSERT_EQ(zeKernelGetProperties(distant, &properties), ZE_RESULT_SUCCESS);
  EXPECT_GE(properties.localMemSize, 65536u);
  constexpr uint32_t kGroups = 300;
  auto* const out = static_cast<uint64_t*>(Exportable(kGroups * 8));
  const void* const arguments[] = {&out};
  ASSERT_EQ(launch_(list_, distant, {kGroups, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  std::vector<uint64_t> host(kGroups);
  Copy(host.data(), out, kGroups * 8);
  Finish(list_);
  for (uint32_t i = 0; i < kGroups; ++i) EXPECT_EQ(host[i], i);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(distant), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

// Skips where CUPTI is not found; XPUD_CUPTI may name the file.
class TraceTest : public CudaDriverTest {
 protected:
  struct Records {
    std::mutex mutex;
    std::vector<xpud_trace_record_t> all;
  };

  void SetUp() override {
    CudaDriverTest::SetUp();
    if (driver_ == nullptr) return;
    start_ = Extension<xpud_pfnStartTrace_t>("xpudDriverStartTrace");
    stop_ = Extension<xpud_pfnStopTrace_t>("xpudDriverStopTrace");
    set_tag_ = Extension<xpud_pfnSetTraceTag_t>("xpudSetTraceTag");
    const auto report = [](void* user, const xpud_trace_record_t* records, size_t count) {
      auto& out = *static_cast<Records*>(user);
      const std::lock_guard lock(out.mutex);
      out.all.insert(out.all.end(), records, records + count);
    };
    module_ = Ptx();
    hold_ = Kernel(module_, "hold");
    const ze_result_t started = start_(driver_, report, &records_);
    if (started == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) GTEST_SKIP() << "CUPTI was not found";
    ASSERT_EQ(started, ZE_RESULT_SUCCESS);
    EXPECT_EQ(start_(driver_, report, &records_), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  }
  void TearDown() override {
    if (hold_ != nullptr) EXPECT_EQ(zeKernelDestroy(hold_), ZE_RESULT_SUCCESS);
    if (module_ != nullptr) EXPECT_EQ(zeModuleDestroy(module_), ZE_RESULT_SUCCESS);
    CudaDriverTest::TearDown();
  }
  void Hold(uint64_t ns) {
    const void* const arguments[] = {&ns};
    ASSERT_EQ(launch_(list_, hold_, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
              ZE_RESULT_SUCCESS);
  }
  // The records of a tag, by begin, after all work has ended.
  std::vector<xpud_trace_record_t> Of(uint64_t tag) {
    std::vector<xpud_trace_record_t> records;
    for (const xpud_trace_record_t& record : records_.all)
      if (record.tag == tag) records.push_back(record);
    std::ranges::sort(records, {}, &xpud_trace_record_t::began_ns);
    return records;
  }

  xpud_pfnStartTrace_t start_ = nullptr;
  xpud_pfnStopTrace_t stop_ = nullptr;
  xpud_pfnSetTraceTag_t set_tag_ = nullptr;
  ze_module_handle_t module_ = nullptr;
  ze_kernel_handle_t hold_ = nullptr;
  Records records_;
};

TEST_P(TraceTest, TimesAgreeWithTheGpusClock) {
  auto* const stamps = static_cast<uint64_t*>(Exportable(16));
  const uint64_t before = NowNs();
  for (const uint64_t tag : {1, 2, 3}) {
    set_tag_(tag);
    if (tag == 2) {
      Hold(3'000'000);
    } else {
      ASSERT_EQ(zeCommandListAppendWriteGlobalTimestamp(list_, stamps + tag / 2, nullptr, 0, nullptr),
                ZE_RESULT_SUCCESS);
    }
  }
  set_tag_(0);
  Hold(1000);
  Finish(list_);
  const uint64_t after = NowNs();
  EXPECT_EQ(stop_(driver_), ZE_RESULT_SUCCESS);
  EXPECT_EQ(stop_(driver_), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(records_.all.size(), 3u);
  for (const uint64_t tag : {1, 2, 3}) {
    ASSERT_EQ(Of(tag).size(), 1u) << tag;
    EXPECT_LE(before, Of(tag)[0].began_ns);
    EXPECT_LE(Of(tag)[0].began_ns, Of(tag)[0].ended_ns);
    EXPECT_LE(Of(tag)[0].ended_ns, after);
  }
  EXPECT_NEAR(static_cast<double>(Of(2)[0].ended_ns - Of(2)[0].began_ns), 3e6, 1e5);
  std::array<uint64_t, 2> stamped{};
  Copy(stamped.data(), stamps, sizeof(stamped));
  Finish(list_);
  const auto between = static_cast<double>(Of(3)[0].began_ns - Of(1)[0].began_ns);
  std::printf("between two stamps: %.0f ns by the GPU's clock, %.0f ns traced\n",
              static_cast<double>(stamped[1] - stamped[0]), between);
  EXPECT_NEAR(between, static_cast<double>(stamped[1] - stamped[0]), 5000);
  EXPECT_EQ(zeMemFree(context_, stamps), ZE_RESULT_SUCCESS);
}

TEST_P(TraceTest, OperationsOfAGraphHaveItsTagAndAreCounted) {
  const auto begin = Extension<xpud_pfnBeginGraphCapture_t>("zeCommandListBeginGraphCaptureExp");
  const auto end = Extension<xpud_pfnEndGraphCapture_t>("zeCommandListEndGraphCaptureExp");
  const auto instantiate = Extension<xpud_pfnInstantiateGraph_t>("zeCommandListInstantiateGraphExp");
  const auto append = Extension<xpud_pfnAppendGraph_t>("zeCommandListAppendGraphExp");
  const auto count = Extension<xpud_pfnCountCaptured_t>("xpudCommandListCountCaptured");
  xpud_graph_handle_t graph = nullptr;
  xpud_executable_graph_handle_t executable = nullptr;
  ASSERT_EQ(begin(list_, nullptr), ZE_RESULT_SUCCESS);
  for (uint32_t i = 0; i < 3; ++i) {
    uint32_t counted = 9;
    EXPECT_EQ(count(list_, &counted), ZE_RESULT_SUCCESS);
    EXPECT_EQ(counted, i);
    Hold(100'000 * (i + 1));
  }
  ASSERT_EQ(end(list_, &graph, nullptr), ZE_RESULT_SUCCESS);
  uint32_t counted = 0;
  EXPECT_EQ(count(list_, &counted), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(instantiate(graph, &executable, nullptr), ZE_RESULT_SUCCESS);
  for (const uint64_t tag : {5, 6}) {
    set_tag_(tag);
    ASSERT_EQ(append(list_, executable, nullptr, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  }
  set_tag_(0);
  Finish(list_);
  EXPECT_EQ(stop_(driver_), ZE_RESULT_SUCCESS);
  for (const uint64_t tag : {5, 6}) {
    ASSERT_EQ(Of(tag).size(), 3u);
    for (uint32_t i = 0; i < 3; ++i)
      EXPECT_NEAR(static_cast<double>(Of(tag)[i].ended_ns - Of(tag)[i].began_ns), 1e5 * (i + 1), 3e4);
  }
  EXPECT_EQ(Extension<xpud_pfnExecutableGraphDestroy_t>("zeExecutableGraphDestroyExp")(executable),
            ZE_RESULT_SUCCESS);
  EXPECT_EQ(Extension<xpud_pfnGraphDestroy_t>("zeGraphDestroyExp")(graph), ZE_RESULT_SUCCESS);
}

TEST_P(CudaDriverTest, PtxThatDoesNotCompileSaysWhy) {
  const std::string source =
      ".version 7.8\n.target sm_70\n.address_size 64\n.visible .entry f() { nonsense; }\n";
  const ze_module_desc_t desc{ZE_STRUCTURE_TYPE_MODULE_DESC,
                              nullptr,
                              ZE_MODULE_FORMAT_NATIVE,
                              source.size(),
                              reinterpret_cast<const uint8_t*>(source.data()),
                              nullptr,
                              nullptr};
  ze_module_handle_t module = nullptr;
  ze_module_build_log_handle_t log = nullptr;
  EXPECT_EQ(zeModuleCreate(context_, device_, &desc, &module, &log), ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
  size_t size = 0;
  ASSERT_EQ(zeModuleBuildLogGetString(log, &size, nullptr), ZE_RESULT_SUCCESS);
  std::string text(size, ' ');
  ASSERT_EQ(zeModuleBuildLogGetString(log, &size, text.data()), ZE_RESULT_SUCCESS);
  EXPECT_NE(text.find("nonsense"), std::string::npos) << text;
  EXPECT_EQ(zeModuleBuildLogDestroy(log), ZE_RESULT_SUCCESS);
}

TEST_P(CudaDriverTest, HostKernelEnqueuesOnTheListsStream) {
  ze_module_handle_t module = Module(XPUD_ZE_MODULE_FORMAT_HOST, &kHostModule, sizeof(kHostModule));
  ze_kernel_handle_t fill = Kernel(module, "fill");
  ze_kernel_handle_t refuse = Kernel(module, "refuse");
  constexpr uint64_t kBytes = 1 << 20;
  void* const memory = Exportable(kBytes);
  const void* const arguments[] = {&memory, &kBytes};
  ASSERT_EQ(launch_(list_, fill, {5, 5, 5}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  std::vector<uint8_t> host(kBytes);
  Copy(host.data(), memory, kBytes);
  Finish(list_);
  EXPECT_EQ(std::accumulate(host.begin(), host.end(), uint64_t{0}), 7 * kBytes);
  EXPECT_EQ(launch_(list_, refuse, {1, 1, 1}, {1, 1, 1}, nullptr, nullptr, nullptr, 0, nullptr),
            ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  EXPECT_EQ(zeMemFree(context_, memory), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(fill), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(refuse), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

TEST_P(CudaDriverTest, ImportedMemoryIsReadAndWrittenInPlace) {
  constexpr size_t kBytes = size_t{4} << 20;
  const int fd = memfd_create("staging", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  void* const staging = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(staging, MAP_FAILED);
  const auto import = Extension<xpud_pfnImportExternalPointer_t>("zexDriverImportExternalPointer");
  const auto release = Extension<xpud_pfnReleaseImportedPointer_t>("zexDriverReleaseImportedPointer");
  ASSERT_EQ(import(driver_, staging, kBytes), ZE_RESULT_SUCCESS);
  auto* const words = static_cast<uint64_t*>(staging);
  ze_module_handle_t module = Ptx();
  ze_kernel_handle_t add = Kernel(module, "add");
  words[3] = 40;
  const uint64_t addend = 2;
  const void* const arguments[] = {&staging, &addend};
  ASSERT_EQ(launch_(list_, add, {4, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  uint64_t* const counter = words + 1000;
  ASSERT_EQ(write_(list_, counter, 77), ZE_RESULT_SUCCESS);
  const std::atomic_ref<uint64_t> seen(*counter);
  for (int i = 0; i < 20'000'000 && seen.load(std::memory_order_acquire) != 77; ++i) {
  }
  EXPECT_EQ(seen.load(), 77u) << "the host saw the value without any call";
  EXPECT_EQ(words[3], 42u) << "what came before the value is there, too";
  Finish(list_);
  EXPECT_EQ(release(driver_, staging), ZE_RESULT_SUCCESS);
  EXPECT_EQ(release(driver_, staging), ZE_RESULT_ERROR_INVALID_ARGUMENT) << "released twice";
  EXPECT_EQ(zeKernelDestroy(add), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
  munmap(staging, kBytes);
  close(fd);
}

// The application may change a pageable source when the append returns, whatever is queued before it.
TEST_P(CudaDriverTest, PageableSourceIsTakenDuringTheAppend) {
  for (const size_t bytes :
       {size_t{64}, size_t{4096}, size_t{64} << 10, (size_t{64} << 10) + 8, size_t{8} << 20}) {
    void* const memory = Exportable(bytes);
    void* const busy = Exportable(size_t{512} << 20);
    std::vector<uint8_t> source(bytes, 5);
    std::vector<uint8_t> target(bytes, 0);
    const uint8_t one = 1;
    for (int i = 0; i < 8; ++i)
      ASSERT_EQ(zeCommandListAppendMemoryFill(list_, busy, &one, 1, size_t{512} << 20, nullptr, 0, nullptr),
                ZE_RESULT_SUCCESS);
    Copy(memory, source.data(), bytes);
    std::fill(source.begin(), source.end(), uint8_t{9});
    Copy(target.data(), memory, bytes);
    Finish(list_);
    EXPECT_EQ(std::accumulate(target.begin(), target.end(), uint64_t{0}), 5 * bytes) << bytes;
    EXPECT_EQ(zeMemFree(context_, memory), ZE_RESULT_SUCCESS);
    EXPECT_EQ(zeMemFree(context_, busy), ZE_RESULT_SUCCESS);
  }
}

TEST_P(CudaDriverTest, NewExportableMemoryIsZeroAfterOthersUse) {
  constexpr size_t kBytes = size_t{256} << 20;
  std::vector<uint64_t> host(kBytes / 8);
  const uint8_t secret = 0x5a;
  for (int i = 0; i < 4; ++i) {
    void* const memory = Exportable(kBytes);
    Copy(host.data(), memory, kBytes);
    Finish(list_);
    EXPECT_EQ(std::accumulate(host.begin(), host.end(), uint64_t{0}), 0u);
    ASSERT_EQ(zeCommandListAppendMemoryFill(list_, memory, &secret, 1, kBytes, nullptr, 0, nullptr),
              ZE_RESULT_SUCCESS);
    Finish(list_);
    EXPECT_EQ(zeMemFree(context_, memory), ZE_RESULT_SUCCESS);
  }
}

TEST_P(CudaDriverTest, FillsOfEveryPatternSize) {
  constexpr size_t kBytes = 10'007;
  uint8_t* const memory = Shared<uint8_t>(kBytes + 64);
  for (const size_t pattern_size : {1, 2, 3, 4, 7, 8, 16, 128}) {
    for (const size_t offset : {0, 1}) {
      std::vector<uint8_t> pattern(pattern_size);
      std::iota(pattern.begin(), pattern.end(), static_cast<uint8_t>(pattern_size + offset));
      const size_t size = kBytes / pattern_size * pattern_size;
      ASSERT_EQ(zeCommandListAppendMemoryFill(list_, memory + offset, pattern.data(), pattern_size, size,
                                              nullptr, 0, nullptr),
                ZE_RESULT_SUCCESS);
      Finish(list_);
      for (size_t i = 0; i < size; ++i)
        ASSERT_EQ(memory[offset + i], pattern[i % pattern_size]) << pattern_size << ' ' << offset << ' ' << i;
    }
  }
  const std::vector<uint8_t> large(129);
  EXPECT_EQ(
      zeCommandListAppendMemoryFill(list_, memory, large.data(), large.size(), kBytes, nullptr, 0, nullptr),
      ZE_RESULT_ERROR_INVALID_SIZE);
  EXPECT_EQ(zeMemFree(context_, memory), ZE_RESULT_SUCCESS);
}

// CUDA gives streams 8 hardware queues. If fewer lists wait for a value, the list that will write it is not
// blocked.
TEST_P(CudaDriverTest, AFewListsThatWaitDoNotHoldUpOthers) {
  for (const int waiting : {1, 3, 7}) {
    ze_event_pool_handle_t pool = Pool(1);
    ze_event_handle_t go = Event(pool, 0);
    std::vector<ze_command_list_handle_t> lists;
    for (int i = 0; i <= waiting; ++i) lists.push_back(ImmediateList());
    for (int i = 0; i < waiting; ++i)
      ASSERT_EQ(zeCommandListAppendWaitOnEvents(lists[i], 1, &go), ZE_RESULT_SUCCESS);
    ASSERT_EQ(zeCommandListAppendSignalEvent(lists.back(), go), ZE_RESULT_SUCCESS);
    EXPECT_EQ(zeEventHostSynchronize(go, 1'000'000'000), ZE_RESULT_SUCCESS) << waiting << " lists wait";
    ASSERT_EQ(zeEventHostSignal(go), ZE_RESULT_SUCCESS);
    for (ze_command_list_handle_t list : lists) {
      Finish(list);
      EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
    }
    EXPECT_EQ(zeEventDestroy(go), ZE_RESULT_SUCCESS);
    EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
  }
}

// If the signal was appended first, any number of lists may wait for it.
TEST_P(CudaDriverTest, ManyListsWaitForWhatWasAppendedBefore) {
  ze_module_handle_t module = Ptx();
  ze_kernel_handle_t spin = Kernel(module, "spin");
  ze_event_pool_handle_t pool = Pool(1);
  ze_event_handle_t go = Event(pool, 0);
  uint64_t* const words = Shared<uint64_t>(65);
  const void* const arguments[] = {&words};
  std::vector<ze_command_list_handle_t> lists;
  for (int i = 0; i < 64; ++i) lists.push_back(ImmediateList());
  ASSERT_EQ(launch_(list_, spin, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, go, 0, nullptr),
            ZE_RESULT_SUCCESS);
  for (size_t i = 0; i < lists.size(); ++i) {
    ASSERT_EQ(zeCommandListAppendWaitOnEvents(lists[i], 1, &go), ZE_RESULT_SUCCESS);
    ASSERT_EQ(write_(lists[i], words + 1 + i, i), ZE_RESULT_SUCCESS);
  }
  EXPECT_EQ(synchronize_(list_, 3'000'000), ZE_RESULT_NOT_READY) << "a kernel that does not end";
  EXPECT_EQ(zeEventHostSynchronize(go, 3'000'000), ZE_RESULT_NOT_READY);
  std::atomic_ref<uint64_t>(words[0]).store(1);
  for (ze_command_list_handle_t list : lists) {
    Finish(list);
    EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  }
  for (size_t i = 0; i < lists.size(); ++i) EXPECT_EQ(words[1 + i], i);
  EXPECT_EQ(zeEventDestroy(go), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, words), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(spin), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(On, CudaDriverTest, ::testing::Values("cuda"), NameOf);
INSTANTIATE_TEST_SUITE_P(On, TraceTest, ::testing::Values("cuda"), NameOf);

}  // namespace
}  // namespace xpud::drivers
