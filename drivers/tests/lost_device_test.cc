// Faults on a GPU: which calls report them, how soon, and that later calls neither succeed nor hang. Each
// fault happens in a process of its own, since it ends that process's use of the GPU.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

#include "drivers/tests/cuda_kernels.h"
#include "drivers/tests/driver_under_test.h"
#include "drivers/tests/number.h"
#include "drivers/tests/stopwatch.h"

namespace xpud::drivers {
namespace {

// In the environment of a child: the call that it tries first to detect the fault.
constexpr char kLookVariable[] = "XPUD_TEST_LOOK";

class LostDeviceTest : public DriverTest {
 protected:
  static constexpr size_t kCounters = 512;  // in words_
  static constexpr uint32_t kCounts = 64;

  // Prepares a child that will fault.
  void Prepare() {
    module_ = Module(ZE_MODULE_FORMAT_NATIVE, kCudaKernels, sizeof(kCudaKernels));
    empty_ = Kernel(module_, "empty");
    fault_ = Kernel(module_, "fault");
    spin_ = Kernel(module_, "spin");
    count_ = Kernel(module_, "count");
    faulty_ = ImmediateList();
    idle_ = ImmediateList();
    busy_ = ImmediateList();
    counting_ = ImmediateList();
    pool_ = Pool(4);
    never_ = Event(pool_, 0);
    words_ = Shared<uint64_t>(1024);
  }
  ze_result_t Launch(ze_command_list_handle_t list, ze_kernel_handle_t kernel,
                     ze_event_handle_t signal = nullptr) {
    const uint64_t none = 0;
    const void* arguments[] = {&words_, &none, &none};
    return launch_(list, kernel, {1, 1, 1}, {1, 1, 1}, arguments, nullptr, signal, 0, nullptr);
  }

  using Named = std::pair<const char*, std::function<ze_result_t()>>;
  // Calls that detect a lost device without waiting.
  std::vector<Named> Looks() {
    return {{"synchronize the list that faults, 0", [&] { return synchronize_(faulty_, 0); }},
            {"synchronize an idle list, 0", [&] { return synchronize_(idle_, 0); }},
            {"synchronize a busy list, 0", [&] { return synchronize_(busy_, 0); }},
            {"zeDeviceGetStatus", [&] { return zeDeviceGetStatus(device_); }},
            {"synchronize with its event, 0", [&] { return zeEventHostSynchronize(never_, 0); }},
            {"append to an idle list", [&] { return Launch(idle_, empty_); }}};
  }
  std::vector<Named> Appends(ze_command_list_handle_t list);
  std::vector<Named> OtherCalls();
  void ExpectLost(const std::vector<Named>& calls, const char* where);
  // Starts endless kernels that write counters.
  void StartCounting() {
    const uint64_t* const counters = words_ + kCounters;
    const void* arguments[] = {&counters};
    ASSERT_EQ(launch_(counting_, count_, {kCounts, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
              ZE_RESULT_SUCCESS);
    while (std::atomic_ref<uint64_t>(words_[kCounters]).load() == 0) std::this_thread::yield();
  }
  std::vector<uint64_t> Counters() const { return {words_ + kCounters, words_ + kCounters + kCounts}; }

  ze_module_handle_t module_ = nullptr;
  ze_kernel_handle_t empty_ = nullptr;
  ze_kernel_handle_t fault_ = nullptr;
  ze_kernel_handle_t spin_ = nullptr;
  ze_kernel_handle_t count_ = nullptr;
  ze_command_list_handle_t faulty_ = nullptr;
  ze_command_list_handle_t idle_ = nullptr;
  ze_command_list_handle_t busy_ = nullptr;
  ze_command_list_handle_t counting_ = nullptr;
  ze_event_pool_handle_t pool_ = nullptr;
  ze_event_handle_t never_ = nullptr;
  uint64_t* words_ = nullptr;
};

std::vector<LostDeviceTest::Named> LostDeviceTest::Appends(ze_command_list_handle_t list) {
  static constexpr uint8_t kPattern[3] = {1, 2, 3};
  static constexpr ze_copy_region_t kRegion{0, 0, 0, 8, 2, 1};
  return {
      {"launch", [=, this] { return Launch(list, empty_); }},
      {"write value", [=, this] { return write_(list, words_ + 1, 1); }},
      {"copy",
       [=, this] { return zeCommandListAppendMemoryCopy(list, words_, words_ + 8, 8, nullptr, 0, nullptr); }},
      {"region",
       [=, this] {
         return zeCommandListAppendMemoryCopyRegion(list, words_, &kRegion, 16, 0, words_ + 8, &kRegion, 16,
                                                    0, nullptr, 0, nullptr);
       }},
      {"fill by CUDA",
       [=, this] {
         return zeCommandListAppendMemoryFill(list, words_, kPattern, 1, 64, nullptr, 0, nullptr);
       }},
      {"fill by a kernel",
       [=, this] {
         return zeCommandListAppendMemoryFill(list, words_, kPattern, 3, 63, nullptr, 0, nullptr);
       }},
      {"signal", [=, this] { return zeCommandListAppendSignalEvent(list, never_); }},
      {"wait", [=, this] { return zeCommandListAppendWaitOnEvents(list, 1, &never_); }},
      {"reset", [=, this] { return zeCommandListAppendEventReset(list, never_); }},
      {"timestamp",
       [=, this] { return zeCommandListAppendWriteGlobalTimestamp(list, words_, nullptr, 0, nullptr); }},
      {"synchronize", [=, this] { return synchronize_(list, UINT64_MAX); }},
  };
}

std::vector<LostDeviceTest::Named> LostDeviceTest::OtherCalls() {
  const auto allocate = [this](const void* next) {
    const ze_device_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, next, 0, 0};
    void* address = nullptr;
    return zeMemAllocDevice(context_, &desc, size_t{4} << 20, 0, device_, &address);
  };
  static constexpr ze_external_memory_export_desc_t kExported{
      ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr, ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
  return {
      {"device status", [this] { return zeDeviceGetStatus(device_); }},
      {"context status", [this] { return zeContextGetStatus(context_); }},
      {"event status", [this] { return zeEventQueryStatus(never_); }},
      {"event synchronize", [this] { return zeEventHostSynchronize(never_, UINT64_MAX); }},
      {"allocate", [=] { return allocate(nullptr); }},
      {"allocate exportable", [=] { return allocate(&kExported); }},
      {"allocate host",
       [this] {
         const ze_host_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
         void* address = nullptr;
         return zeMemAllocHost(context_, &desc, 4096, 0, &address);
       }},
      {"reserve",
       [this] {
         void* address = nullptr;
         return zeVirtualMemReserve(context_, nullptr, size_t{4} << 20, &address);
       }},
      {"physical memory",
       [this] {
         ze_physical_mem_desc_t desc{ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, 0, size_t{4} << 20};
         ze_physical_mem_handle_t memory = nullptr;
         return zePhysicalMemCreate(context_, device_, &desc, &memory);
       }},
      {"list",
       [this] {
         const ze_command_queue_desc_t desc{
             ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, nullptr, 0, 0, 0, ZE_COMMAND_QUEUE_MODE_DEFAULT,
             ZE_COMMAND_QUEUE_PRIORITY_NORMAL};
         ze_command_list_handle_t list = nullptr;
         return zeCommandListCreateImmediate(context_, device_, &desc, &list);
       }},
      {"module",
       [this] {
         const ze_module_desc_t desc{ZE_STRUCTURE_TYPE_MODULE_DESC,
                                     nullptr,
                                     ZE_MODULE_FORMAT_NATIVE,
                                     sizeof(kCudaKernels),
                                     reinterpret_cast<const uint8_t*>(kCudaKernels),
                                     nullptr,
                                     nullptr};
         ze_module_handle_t module = nullptr;
         return zeModuleCreate(context_, device_, &desc, &module, nullptr);
       }},
  };
}

void LostDeviceTest::ExpectLost(const std::vector<Named>& calls, const char* where) {
  for (const auto& [name, call] : calls) {
    const Stopwatch watch;
    EXPECT_EQ(call(), ZE_RESULT_ERROR_DEVICE_LOST) << where << ": " << name;
    EXPECT_LT(watch.Us(), 1e6) << where << ": " << name;
  }
}

// Runs in the children of the next test.
TEST_P(LostDeviceTest, ChildFaults) {
  const char* const look = std::getenv(kLookVariable);
  if (look == nullptr) GTEST_SKIP() << "only for the children of EveryLookSeesAFault";
  Prepare();
  const auto [name, poll] = Looks()[static_cast<size_t>(NumberIn(look))];
  ASSERT_EQ(zeDeviceGetStatus(device_), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Launch(busy_, spin_), ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(busy_, 10'000'000), ZE_RESULT_NOT_READY);
  StartCounting();
  ASSERT_EQ(Launch(faulty_, fault_, never_), ZE_RESULT_SUCCESS);
  const Stopwatch watch;
  uint64_t polls = 0;
  ze_result_t result = ZE_RESULT_SUCCESS;
  while ((result == ZE_RESULT_SUCCESS || result == ZE_RESULT_NOT_READY) && watch.Us() < 5e6) {
    result = poll();
    ++polls;
  }
  const double seen = watch.Us();
  // The fault has ended other kernels too: their memory can be used safely from now on.
  const std::vector<uint64_t> counters = Counters();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(Counters(), counters) << name;
  EXPECT_EQ(result, ZE_RESULT_ERROR_DEVICE_LOST) << name;
  std::printf("FIGURE fault seen by \"%s\" after %.0f us, %lu polls of %.2f us\n", name, seen, polls,
              seen / static_cast<double>(polls));
  ExpectLost(Appends(faulty_), "the list that faulted");
  ExpectLost(Appends(idle_), "an idle list");
  ExpectLost(Appends(busy_), "a busy list");
  ExpectLost(OtherCalls(), "any list");
  EXPECT_EQ(zeMemFree(context_, words_), ZE_RESULT_SUCCESS) << "what is gone can be given back";
}

// Runs a child, from fork to reaping.
int RunChild(size_t look) {
  const pid_t child = fork();
  if (child == 0) {
    setenv(kLookVariable, std::to_string(look).c_str(), 1);
    execl("/proc/self/exe", "lost_device_test", "--gtest_brief=1", "--gtest_filter=*ChildFaults*", nullptr);
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST_P(LostDeviceTest, EveryLookSeesAFault) {
  for (size_t look = 0; look < Looks().size(); ++look) {
    EXPECT_EQ(RunChild(look), 0) << Looks()[look].first;
    EXPECT_EQ(zeDeviceGetStatus(device_), ZE_RESULT_SUCCESS) << "the fault is the child's alone";
  }
  ze_command_list_handle_t list = ImmediateList();
  uint64_t* const word = Shared<uint64_t>(1);
  ASSERT_EQ(write_(list, word, 3), ZE_RESULT_SUCCESS);
  Finish(list);
  EXPECT_EQ(*word, 3u);
  EXPECT_EQ(zeMemFree(context_, word), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
}

// The cost of detection while nothing is wrong.
TEST_P(LostDeviceTest, LooksAreCheap) {
  Prepare();
  ASSERT_EQ(Launch(busy_, spin_), ZE_RESULT_SUCCESS);
  for (const auto& [name, look] : Looks()) {
    if (std::strncmp(name, "append", 6) == 0) continue;
    constexpr int kLooks = 20'000;
    const Stopwatch watch;
    for (int i = 0; i < kLooks; ++i) static_cast<void>(look());
    const double each = watch.Us() / kLooks;
    std::printf("FIGURE a look by \"%s\" costs %.3f us\n", name, each);
    EXPECT_LT(each, 100) << name;
  }
  words_[0] = 1;
  Finish(busy_);
  for (ze_command_list_handle_t list : {faulty_, idle_, busy_})
    EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventDestroy(never_), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventPoolDestroy(pool_), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, words_), ZE_RESULT_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(On, LostDeviceTest, ::testing::Values("cuda"), NameOf);

}  // namespace
}  // namespace xpud::drivers
