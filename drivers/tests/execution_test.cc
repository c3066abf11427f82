// Launches, copies, events, lists and queues through Debian's loader.
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "drivers/tests/driver_under_test.h"
#include "drivers/tests/kernels_under_test.h"

namespace xpud::drivers {
namespace {

using Clock = std::chrono::steady_clock;

void AddOne(const void* const* args, const uint32_t group[3], void*) {
  uint64_t* const out = *static_cast<uint64_t* const*>(args[0]);
  const auto addend = *static_cast<const uint64_t*>(args[1]);
  out[group[0]] += addend;
}

constexpr uint32_t kAddSizes[] = {8, 8};
constexpr xpud_host_kernel_t kHostKernels[] = {{"add", AddOne, 2, kAddSizes}};
constexpr xpud_host_module_t kHostModule = {XPUD_HOST_MODULE_VERSION, 1, kHostKernels};

class ExecutionTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (driver_ == nullptr) return;
    module_ = Kernels();
    add_ = Kernel(module_, "add");
    list_ = ImmediateList();
  }
  void TearDown() override {
    if (driver_ != nullptr) {
      EXPECT_EQ(zeCommandListDestroy(list_), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeKernelDestroy(add_), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeModuleDestroy(module_), ZE_RESULT_SUCCESS);
    }
    DriverTest::TearDown();
  }
  ze_module_handle_t Kernels() {
    const std::string_view kernels = KernelsFor(GetParam());
    return Module(ZE_MODULE_FORMAT_NATIVE, kernels.data(), kernels.size());
  }
  std::string NativeBinary(ze_module_handle_t module) {
    size_t size = 0;
    EXPECT_EQ(zeModuleGetNativeBinary(module, &size, nullptr), ZE_RESULT_SUCCESS);
    std::string bytes(size, '\0');
    EXPECT_EQ(zeModuleGetNativeBinary(module, &size, reinterpret_cast<uint8_t*>(bytes.data())),
              ZE_RESULT_SUCCESS);
    return bytes;
  }
  // out[i] += addend for i < groups.
  ze_result_t Add(ze_command_list_handle_t list, uint64_t* out, uint64_t addend, uint32_t groups,
                  ze_event_handle_t signal = nullptr, ze_event_handle_t wait = nullptr) {
    const void* const arguments[] = {&out, &addend};
    return launch_(list, add_, {groups, 1, 1}, {1, 1, 1}, arguments, nullptr, signal, wait != nullptr ? 1 : 0,
                   wait != nullptr ? &wait : nullptr);
  }
  ze_command_list_handle_t RegularList() {
    const ze_command_list_desc_t desc{ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, nullptr, 0, 0};
    ze_command_list_handle_t list = nullptr;
    EXPECT_EQ(zeCommandListCreate(context_, device_, &desc, &list), ZE_RESULT_SUCCESS);
    return list;
  }
  ze_command_queue_handle_t Queue() {
    ze_command_queue_desc_t desc{};
    desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    ze_command_queue_handle_t queue = nullptr;
    EXPECT_EQ(zeCommandQueueCreate(context_, device_, &desc, &queue), ZE_RESULT_SUCCESS);
    return queue;
  }

  void Destroy(std::initializer_list<ze_event_handle_t> events,
               std::initializer_list<ze_event_pool_handle_t> pools) {
    for (ze_event_handle_t event : events) EXPECT_EQ(zeEventDestroy(event), ZE_RESULT_SUCCESS);
    for (ze_event_pool_handle_t pool : pools) EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
  }

  ze_module_handle_t module_ = nullptr;
  ze_kernel_handle_t add_ = nullptr;
  ze_command_list_handle_t list_ = nullptr;
};

TEST_P(ExecutionTest, EveryGroupRuns) {
  uint64_t* const out = Shared<uint64_t>(1000);
  ASSERT_EQ(Add(list_, out, 3, 1000), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Add(list_, out, 4, 1), ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(out[0], 7u);
  EXPECT_EQ(std::accumulate(out, out + 1000, uint64_t{0}), 3004u);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, HostKernelRunsEveryGroup) {
  if (!IsCpu()) GTEST_SKIP() << "on GPUs HOST kernels are calls that enqueue: see cuda_driver_test";
  ze_module_handle_t module = Module(XPUD_ZE_MODULE_FORMAT_HOST, &kHostModule, sizeof(kHostModule));
  ze_kernel_handle_t add = Kernel(module, "add");
  uint64_t* const out = Shared<uint64_t>(1000);
  const uint64_t addend = 3;
  const void* const arguments[] = {&out, &addend};
  ASSERT_EQ(launch_(list_, add, {1000, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(std::accumulate(out, out + 1000, uint64_t{0}), 3000u);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(add), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, ArgumentsSetOnTheKernelAreUsed) {
  uint64_t* const out = Shared<uint64_t>(4);
  const uint64_t addend = 5;
  ASSERT_EQ(zeKernelSetArgumentValue(add_, 0, 8, &out), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeKernelSetArgumentValue(add_, 1, 8, &addend), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelSetArgumentValue(add_, 1, 4, &addend), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
  EXPECT_EQ(zeKernelSetArgumentValue(add_, 2, 8, &addend), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
  EXPECT_EQ(zeKernelSetGroupSize(add_, IsCpu() ? 2 : 2048, 1, 1),
            ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
  const ze_group_count_t groups{4, 1, 1};
  ASSERT_EQ(zeCommandListAppendLaunchKernel(list_, add_, &groups, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListAppendLaunchKernelIndirect(list_, add_, &groups, nullptr, 0, nullptr),
            IsCpu() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(std::accumulate(out, out + 4, uint64_t{0}), IsCpu() ? 40u : 20u);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, NativeModuleRuns) {
  ze_module_handle_t module = Kernels();
  uint32_t count = 0;
  ASSERT_EQ(zeModuleGetKernelNames(module, &count, nullptr), ZE_RESULT_SUCCESS);
  EXPECT_GE(count, 3u);
  ze_kernel_handle_t kernel = Kernel(module, "scale");
  ze_kernel_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES;
  ASSERT_EQ(zeKernelGetProperties(kernel, &properties), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.numKernelArgs, 3u);
  float* const memory = Shared<float>(200);
  std::iota(memory, memory + 100, 0.0f);
  float* const out = memory + 100;
  const float factor = 0.5f;
  const void* const arguments[] = {&out, &memory, &factor};
  ASSERT_EQ(launch_(list_, kernel, {100, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(out[i], 0.5f * static_cast<float>(i));
  EXPECT_EQ(zeMemFree(context_, memory), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(kernel), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, NativeBinaryLoadsAgain) {
  ze_module_handle_t module = Kernels();
  const std::string bytes = NativeBinary(module);
  ze_module_handle_t again = Module(ZE_MODULE_FORMAT_NATIVE, bytes.data(), bytes.size());
  void* address = nullptr;
  size_t global = 0;
  EXPECT_EQ(zeModuleGetFunctionPointer(again, "table", &address),
            IsCpu() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  EXPECT_EQ(zeModuleGetGlobalPointer(again, "launches", &global, &address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(global, 8u);
  EXPECT_EQ(zeModuleDestroy(again), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, CorruptModuleIsRefusedWithItsReason) {
  const std::string bytes = NativeBinary(module_).substr(0, 200);
  const ze_module_desc_t desc{ZE_STRUCTURE_TYPE_MODULE_DESC,
                              nullptr,
                              ZE_MODULE_FORMAT_NATIVE,
                              bytes.size(),
                              reinterpret_cast<const uint8_t*>(bytes.data()),
                              nullptr,
                              nullptr};
  ze_module_handle_t module = nullptr;
  ze_module_build_log_handle_t log = nullptr;
  EXPECT_EQ(zeModuleCreate(context_, device_, &desc, &module, &log), ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
  size_t size = 0;
  ASSERT_EQ(zeModuleBuildLogGetString(log, &size, nullptr), ZE_RESULT_SUCCESS);
  std::string text(size, ' ');
  ASSERT_EQ(zeModuleBuildLogGetString(log, &size, text.data()), ZE_RESULT_SUCCESS);
  EXPECT_NE(text.find("outside the file"), std::string::npos) << text;
  EXPECT_EQ(zeModuleBuildLogDestroy(log), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, CopiesFillsAndRegionsMoveTheRightBytes) {
  constexpr size_t kBytes = (size_t{3} << 20) + 13;  // large enough to be split over the workers
  uint8_t* const a = Shared<uint8_t>(kBytes);
  uint8_t* const b = Shared<uint8_t>(kBytes);
  const uint8_t pattern[3] = {1, 2, 3};
  ASSERT_EQ(zeCommandListAppendMemoryFill(list_, a, pattern, 3, kBytes, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListAppendMemoryCopy(list_, b, a, kBytes, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(b[i], 1 + i % 3) << i;
  const uint8_t zero = 0;
  ASSERT_EQ(zeCommandListAppendMemoryFill(list_, b, &zero, 1, 10000, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  const ze_copy_region_t to{1, 2, 0, 4, 3, 0};
  const ze_copy_region_t from{0, 0, 0, 4, 3, 0};
  ASSERT_EQ(zeCommandListAppendMemoryCopyRegion(list_, b, &to, 100, 0, a, &from, 50, 0, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  for (size_t y = 0; y < 3; ++y) {
    for (size_t x = 0; x < 4; ++x) EXPECT_EQ(b[(y + 2) * 100 + x + 1], a[y * 50 + x]);
  }
  EXPECT_EQ(std::accumulate(b, b + 10000, 0), std::accumulate(a, a + 4, 0) +
                                                  std::accumulate(a + 50, a + 54, 0) +
                                                  std::accumulate(a + 100, a + 104, 0));
  EXPECT_EQ(zeMemFree(context_, a), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, b), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, AppendWaitsForAnUnsignalledEventAndKeepsOrder) {
  ze_event_pool_handle_t pool = Pool(2);
  ze_event_handle_t gate = Event(pool, 0);
  ze_event_handle_t done = Event(pool, 1);
  uint64_t* const out = Shared<uint64_t>(3);
  ASSERT_EQ(Add(list_, out, 1, 1, nullptr, gate), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListAppendMemoryCopy(list_, out + 1, out, 8, done, 0, nullptr), ZE_RESULT_SUCCESS);
  uint64_t& counter = out[2];
  ASSERT_EQ(write_(list_, &counter, 9), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventHostSynchronize(done, 2'000'000), ZE_RESULT_NOT_READY);
  EXPECT_EQ(synchronize_(list_, 1'000'000), ZE_RESULT_NOT_READY);
  EXPECT_EQ(out[0], 0u) << "ran before its event";
  ASSERT_EQ(zeEventHostSignal(gate), ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(out[1], 1u);
  EXPECT_EQ(counter, 9u);
  EXPECT_EQ(zeEventQueryStatus(done), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListAppendEventReset(list_, done), ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventQueryStatus(done), ZE_RESULT_NOT_READY);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  Destroy({gate, done}, {pool});
}

TEST_P(ExecutionTest, EventsChainTwoLists) {
  ze_event_pool_handle_t pool = Pool(2);
  ze_event_handle_t gate = Event(pool, 0);
  ze_event_handle_t middle = Event(pool, 1);
  ze_command_list_handle_t second = ImmediateList();
  uint64_t* const out = Shared<uint64_t>(2);
  ASSERT_EQ(zeCommandListAppendWaitOnEvents(second, 1, &middle), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListAppendMemoryCopy(second, out + 1, out, 8, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Add(list_, out, 6, 1, middle, gate), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeEventHostSignal(gate), ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(second, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(out[1], 6u);
  EXPECT_EQ(zeCommandListDestroy(second), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  Destroy({gate, middle}, {pool});
}

TEST_P(ExecutionTest, ArgumentsOfAQueuedLaunchAreCopied) {
  ze_event_pool_handle_t pool = Pool(1);
  ze_event_handle_t gate = Event(pool, 0);
  uint64_t* out = Shared<uint64_t>(1);
  uint64_t addend = 2;
  const void* const arguments[] = {&out, &addend};
  ASSERT_EQ(launch_(list_, add_, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 1, &gate),
            ZE_RESULT_SUCCESS);
  uint64_t* const kept = out;
  out = nullptr;
  addend = 100;
  ASSERT_EQ(zeEventHostSignal(gate), ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(*kept, 2u);
  EXPECT_EQ(zeMemFree(context_, kept), ZE_RESULT_SUCCESS);
  Destroy({gate}, {pool});
}

TEST_P(ExecutionTest, ListDestroyedWhileItWaitsEnds) {
  ze_event_pool_handle_t pool = Pool(1);
  ze_event_handle_t never = Event(pool, 0);
  ze_command_list_handle_t list = ImmediateList();
  uint64_t* const out = Shared<uint64_t>(1);
  ASSERT_EQ(Add(list, out, 1, 1, nullptr, never), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  EXPECT_EQ(*out, 0u);
  Destroy({never}, {pool});  // releases the list that waits for it
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, TimestampsAreRecordedWhereThePoolAsks) {
  ze_event_pool_handle_t pool =
      Pool(1, ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
  ze_event_pool_handle_t plain = Pool(1);
  ze_event_handle_t timed = Event(pool, 0);
  ze_event_handle_t untimed = Event(plain, 0);
  uint64_t* const out = Shared<uint64_t>(100000);
  ze_kernel_timestamp_result_t result{};
  EXPECT_EQ(zeEventQueryKernelTimestamp(timed, &result), ZE_RESULT_NOT_READY);
  uint64_t host = 0, before = 0;
  uint64_t& after = out[99999];
  ASSERT_EQ(zeDeviceGetGlobalTimestamps(device_, &host, &before), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Add(list_, out, 1, 100000, timed), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Add(list_, out, 1, 1, untimed), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListAppendWriteGlobalTimestamp(list_, &after, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  ze_kernel_timestamp_result_t* const queried = Shared<ze_kernel_timestamp_result_t>(1);
  ASSERT_EQ(zeCommandListAppendQueryKernelTimestamps(list_, 1, &timed, queried, nullptr, nullptr, 0, nullptr),
            ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list_, UINT64_MAX), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeEventQueryKernelTimestamp(timed, &result), ZE_RESULT_SUCCESS);
  EXPECT_GE(result.global.kernelStart, before);
  EXPECT_GT(result.global.kernelEnd, result.global.kernelStart);
  EXPECT_GE(after, result.global.kernelEnd);
  EXPECT_EQ(std::memcmp(queried, &result, sizeof(result)), 0);
  EXPECT_EQ(zeMemFree(context_, queried), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventQueryKernelTimestamp(untimed, &result), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  Destroy({timed, untimed}, {pool, plain});
}

TEST_P(ExecutionTest, RegularListRunsAsOftenAsItIsExecuted) {
  ze_command_list_handle_t list = RegularList();
  ze_command_queue_handle_t queue = Queue();
  uint64_t* const out = Shared<uint64_t>(50);
  ASSERT_EQ(Add(list, out, 1, 50), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Add(list, out, 10, 1), ZE_RESULT_SUCCESS);
  EXPECT_EQ(out[0], 0u) << "a regular list must not run when appended to";
  EXPECT_EQ(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr), ZE_RESULT_ERROR_INVALID_ARGUMENT)
      << "open list";
  ASSERT_EQ(zeCommandListClose(list), ZE_RESULT_SUCCESS);
  const ze_fence_desc_t desc{ZE_STRUCTURE_TYPE_FENCE_DESC, nullptr, 0};
  ze_fence_handle_t fence = nullptr;
  ASSERT_EQ(zeFenceCreate(queue, &desc, &fence), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeFenceQueryStatus(fence), ZE_RESULT_NOT_READY);
  ASSERT_EQ(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeFenceHostSynchronize(fence, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(out[0], 22u);
  EXPECT_EQ(out[49], 2u);
  ASSERT_EQ(zeFenceReset(fence), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeFenceQueryStatus(fence), ZE_RESULT_NOT_READY);
  ASSERT_EQ(zeCommandListReset(list), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListClose(list), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandQueueSynchronize(queue, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(out[0], 22u) << "a reset list is empty";
  EXPECT_EQ(zeFenceDestroy(fence), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandQueueDestroy(queue), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, ImmediateListIsNotForAQueue) {
  ze_command_queue_handle_t queue = Queue();
  EXPECT_EQ(zeCommandQueueExecuteCommandLists(queue, 1, &list_, nullptr),
            ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
  EXPECT_EQ(zeCommandQueueDestroy(queue), ZE_RESULT_SUCCESS);
}

TEST_P(ExecutionTest, TwoThreadsAppendToTheirOwnListsAtOnce) {
  constexpr uint32_t kGroups = 64;
  constexpr int kRounds = 2000;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  std::vector<uint64_t*> outs;
  for (int t = 0; t < 3; ++t) outs.push_back(Shared<uint64_t>(kGroups));
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      ze_command_list_handle_t list = ImmediateList();
      for (int i = 0; i < kRounds; ++i) {
        failures += Add(list, outs[t], 1, i % 2 == 0 ? kGroups : 1) != ZE_RESULT_SUCCESS;
      }
      failures += synchronize_(list, UINT64_MAX) != ZE_RESULT_SUCCESS;
      failures += zeCommandListDestroy(list) != ZE_RESULT_SUCCESS;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  for (uint64_t* out : outs) {
    EXPECT_EQ(out[0], uint64_t{kRounds});
    EXPECT_EQ(out[kGroups - 1], uint64_t{kRounds / 2});
    EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  }
}

XPUD_ON_ALL_BACK_ENDS(ExecutionTest);

}  // namespace
}  // namespace xpud::drivers
