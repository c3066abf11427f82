// Several CPU devices in one machine (XPUD_CPU_DEVICES), through Debian's loader: they share the workers and
// the memory, and nothing else.
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <numeric>
#include <set>
#include <thread>

#include "drivers/tests/driver_under_test.h"

namespace xpud::drivers {
namespace {

// With eight workers in all, so that each device has threads of its own on any machine.
constexpr uint32_t kDevices = 2, kWorkers = 4;

std::atomic<uint32_t> held{0};
std::atomic<bool> released{false};

void AddOne(const void* const* args, const uint32_t group[3], void*) {
  uint64_t* const out = *static_cast<uint64_t* const*>(args[0]);
  out[group[0]] += 1;
}

// Stores which thread ran the group.
void NameThread(const void* const* args, const uint32_t group[3], void*) {
  uint64_t* const out = *static_cast<uint64_t* const*>(args[0]);
  out[group[0]] = static_cast<uint64_t>(syscall(SYS_gettid));
}

void Hold(const void* const*, const uint32_t*, void*) {
  held.fetch_add(1);
  while (!released.load()) std::this_thread::yield();
}

constexpr uint32_t kSizes[] = {8};
constexpr xpud_host_kernel_t kKernels[] = {
    {"add", AddOne, 1, kSizes}, {"name", NameThread, 1, kSizes}, {"hold", Hold, 1, kSizes}};
constexpr xpud_host_module_t kModule = {XPUD_HOST_MODULE_VERSION, 3, kKernels};

// A device with an immediate list and kernels.
struct Side {
  ze_device_handle_t device;
  ze_module_handle_t module;
  ze_kernel_handle_t add, name, hold;
  ze_command_list_handle_t list;
  uint64_t* out;  // kGroups numbers
};

constexpr uint32_t kGroups = 256;

class DevicesTest : public DriverTest {
 protected:
  void SetUp() override {
    setenv("XPUD_CPU_DEVICES", std::to_string(kDevices).c_str(), 1);
    setenv("XPUD_CPU_WORKERS", std::to_string(kDevices * kWorkers).c_str(), 1);
    DriverTest::SetUp();
    uint32_t count = 0;
    ASSERT_EQ(zeDeviceGet(driver_, &count, nullptr), ZE_RESULT_SUCCESS);
    ASSERT_EQ(count, kDevices);
    ze_device_handle_t devices[kDevices];
    ASSERT_EQ(zeDeviceGet(driver_, &count, devices), ZE_RESULT_SUCCESS);
    for (uint32_t i = 0; i < kDevices; ++i) {
      device_ = devices[i];
      Side& side = sides_[i];
      side.device = device_;
      side.module = Module(XPUD_ZE_MODULE_FORMAT_HOST, &kModule, sizeof(kModule));
      side.add = Kernel(side.module, "add");
      side.name = Kernel(side.module, "name");
      side.hold = Kernel(side.module, "hold");
      side.list = ImmediateList();
      side.out = Shared<uint64_t>(kGroups);
    }
  }
  void TearDown() override {
    for (const Side& side : sides_) {
      EXPECT_EQ(zeCommandListDestroy(side.list), ZE_RESULT_SUCCESS);
      for (ze_kernel_handle_t kernel : {side.add, side.name, side.hold})
        EXPECT_EQ(zeKernelDestroy(kernel), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeModuleDestroy(side.module), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeMemFree(context_, side.out), ZE_RESULT_SUCCESS);
    }
    DriverTest::TearDown();
  }

  ze_result_t Launch(ze_command_list_handle_t list, ze_kernel_handle_t kernel, uint64_t* out,
                     uint32_t groups) {
    const void* const arguments[] = {&out};
    return launch_(list, kernel, {groups, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr);
  }
  static ze_device_properties_t PropertiesOf(ze_device_handle_t device) {
    ze_device_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    EXPECT_EQ(zeDeviceGetProperties(device, &properties), ZE_RESULT_SUCCESS);
    return properties;
  }

  std::array<Side, kDevices> sides_{};
};

TEST_P(DevicesTest, DevicesAreToldApartAndHaveEqualParts) {
  const auto first = PropertiesOf(sides_[0].device), second = PropertiesOf(sides_[1].device);
  EXPECT_EQ(std::string(first.name) + "|" + second.name,
            std::string(first.name, strlen(first.name) - 1) + "0|" +
                std::string(first.name, strlen(first.name) - 1) + "1");
  EXPECT_NE(std::memcmp(first.uuid.id, second.uuid.id, sizeof(first.uuid.id)), 0);
  EXPECT_EQ(first.numEUsPerSubslice, kWorkers);
  EXPECT_EQ(second.numEUsPerSubslice, kWorkers);
  EXPECT_EQ(first.maxMemAllocSize, second.maxMemAllocSize);
  ze_bool_t reachable = 0;
  EXPECT_EQ(zeDeviceCanAccessPeer(sides_[0].device, sides_[1].device, &reachable), ZE_RESULT_SUCCESS);
  EXPECT_TRUE(reachable);
}

TEST_P(DevicesTest, TwoThreadsComputeOnTwoDevices) {
  constexpr int kLaunches = 2000;
  std::array<std::thread, kDevices> threads;
  for (uint32_t i = 0; i < kDevices; ++i) {
    threads[i] = std::thread([this, &side = sides_[i]] {
      for (int n = 0; n < kLaunches; ++n)
        ASSERT_EQ(Launch(side.list, side.add, side.out, kGroups), ZE_RESULT_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Side& side : sides_) {
    Finish(side.list);
    for (uint32_t group = 0; group < kGroups; ++group) ASSERT_EQ(side.out[group], uint64_t{kLaunches});
  }
}

TEST_P(DevicesTest, NoWorkerServesTwoDevices) {
  std::array<std::set<uint64_t>, kDevices> ran;
  std::array<std::thread, kDevices> threads;
  for (uint32_t i = 0; i < kDevices; ++i) {
    threads[i] = std::thread([this, &side = sides_[i], &ran = ran[i]] {
      for (int n = 0; n < 200; ++n) {
        ASSERT_EQ(Launch(side.list, side.name, side.out, kGroups), ZE_RESULT_SUCCESS);
        Finish(side.list);
        ran.insert(side.out, side.out + kGroups);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint64_t thread : ran[0]) EXPECT_FALSE(ran[1].contains(thread));
}

TEST_P(DevicesTest, ADeviceRunsWhileAllWorkersOfAnotherAreBusy) {
  held = 0;
  released = false;
  std::thread busy([this, &side = sides_[0]] {
    EXPECT_EQ(Launch(side.list, side.hold, side.out, kWorkers), ZE_RESULT_SUCCESS);
  });
  while (held.load() < kWorkers) std::this_thread::yield();
  for (int n = 0; n < 100; ++n)
    EXPECT_EQ(Launch(sides_[1].list, sides_[1].add, sides_[1].out, kGroups), ZE_RESULT_SUCCESS);
  Finish(sides_[1].list);
  EXPECT_EQ(std::accumulate(sides_[1].out, sides_[1].out + kGroups, uint64_t{0}), 100u * kGroups);
  released = true;
  busy.join();
}

TEST_P(DevicesTest, KernelsAndListsOfAnotherDeviceAreRefused) {
  EXPECT_EQ(Launch(sides_[1].list, sides_[0].add, sides_[1].out, 4), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  const ze_group_count_t groups{4, 1, 1};
  EXPECT_EQ(
      zeCommandListAppendLaunchKernelIndirect(sides_[1].list, sides_[0].add, &groups, nullptr, 0, nullptr),
      ZE_RESULT_ERROR_INVALID_ARGUMENT);
  const ze_command_list_desc_t list_desc{ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, nullptr, 0, 0};
  ze_command_list_handle_t list = nullptr;
  ASSERT_EQ(zeCommandListCreate(context_, sides_[0].device, &list_desc, &list), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListClose(list), ZE_RESULT_SUCCESS);
  ze_command_queue_desc_t queue_desc{};
  queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  ze_command_queue_handle_t queue = nullptr;
  ASSERT_EQ(zeCommandQueueCreate(context_, sides_[1].device, &queue_desc, &queue), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeCommandQueueDestroy(queue), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
}

TEST_P(DevicesTest, MemoryIsChargedToItsDevice) {
  const size_t most = PropertiesOf(sides_[0].device).maxMemAllocSize / 3 * 2;
  const ze_device_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
  std::array<void*, kDevices> blocks{};
  for (uint32_t i = 0; i < kDevices; ++i) {
    EXPECT_EQ(zeMemAllocDevice(context_, &desc, most, 0, sides_[i].device, &blocks[i]), ZE_RESULT_SUCCESS);
    void* beyond = nullptr;
    EXPECT_EQ(zeMemAllocDevice(context_, &desc, most, 0, sides_[i].device, &beyond),
              ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
  }
  for (void* block : blocks) EXPECT_EQ(zeMemFree(context_, block), ZE_RESULT_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(On, DevicesTest, ::testing::Values("cpu"), NameOf);

}  // namespace
}  // namespace xpud::drivers
