// Two devices of one back end, through Debian's loader: one maps the other's memory and copies from it. On
// GPUs it also says how fast that is. Skipped where there is one device.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <numeric>

#include "drivers/tests/driver_under_test.h"

namespace xpud::drivers {
namespace {

class PeerTest : public DriverTest {
 protected:
  struct Side {
    ze_device_handle_t device = nullptr;
    ze_context_handle_t context = nullptr;  // its own: in the daemon, each device is in a process of its own
    ze_command_list_handle_t list = nullptr;
    std::byte* here = nullptr;  // memory of the device
    ze_physical_mem_handle_t memory = nullptr;
    std::byte* peer = nullptr;  // the other side's memory
    ze_physical_mem_handle_t imported = nullptr;
    size_t bytes = 0;
  };

  void SetUp() override {
    setenv("XPUD_CPU_DEVICES", "2", 1);
    DriverTest::SetUp();
    if (driver_ == nullptr) return;
    uint32_t count = 0;
    ASSERT_EQ(zeDeviceGet(driver_, &count, nullptr), ZE_RESULT_SUCCESS);
    if (count < 2) GTEST_SKIP() << "there is one device";
    std::vector<ze_device_handle_t> devices(count);
    ASSERT_EQ(zeDeviceGet(driver_, &count, devices.data()), ZE_RESULT_SUCCESS);
    ze_bool_t reachable = 0;
    ASSERT_EQ(zeDeviceCanAccessPeer(devices[0], devices[1], &reachable), ZE_RESULT_SUCCESS);
    if (reachable == 0) GTEST_SKIP() << "the first two devices do not reach each other";
    Open(sides_[0], devices[0]);
    Open(sides_[1], devices[1]);
  }
  void TearDown() override {
    for (Side& side : sides_) Close(side);
    DriverTest::TearDown();
  }
  void Open(Side& side, ze_device_handle_t device) {
    side.device = device_ = device;
    const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    ASSERT_EQ(zeContextCreate(driver_, &desc, &side.context), ZE_RESULT_SUCCESS);
    ze_command_queue_desc_t queue{};
    queue.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    ASSERT_EQ(zeCommandListCreateImmediate(side.context, device, &queue, &side.list), ZE_RESULT_SUCCESS);
  }
  void Close(Side& side) {
    if (side.context == nullptr) return;
    for (const auto& [address, memory] :
         {std::pair(side.peer, side.imported), std::pair(side.here, side.memory)}) {
      if (address == nullptr) continue;
      EXPECT_EQ(zeVirtualMemUnmap(side.context, address, side.bytes), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zePhysicalMemDestroy(side.context, memory), ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeVirtualMemFree(side.context, address, side.bytes), ZE_RESULT_SUCCESS);
    }
    EXPECT_EQ(zeCommandListDestroy(side.list), ZE_RESULT_SUCCESS);
    EXPECT_EQ(zeContextDestroy(side.context), ZE_RESULT_SUCCESS);
  }
  std::byte* Map(const Side& side, const void* chain, ze_physical_mem_handle_t& memory) {
    const ze_physical_mem_desc_t wanted{ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, chain, 0, side.bytes};
    ze_physical_mem_desc_t desc = wanted;
    void* address = nullptr;
    EXPECT_EQ(zePhysicalMemCreate(side.context, side.device, &desc, &memory), ZE_RESULT_SUCCESS);
    EXPECT_EQ(zeVirtualMemReserve(side.context, nullptr, side.bytes, &address), ZE_RESULT_SUCCESS);
    EXPECT_EQ(
        zeVirtualMemMap(side.context, address, side.bytes, memory, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE),
        ZE_RESULT_SUCCESS);
    return static_cast<std::byte*>(address);
  }
  // Gives each side memory of its own, and maps the other's.
  void MapBoth(size_t wanted) {
    constexpr ze_external_memory_export_desc_t kExported{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC,
                                                         nullptr, ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
    for (Side& side : sides_) {
      size_t page = 0;
      ASSERT_EQ(zeVirtualMemQueryPageSize(side.context, side.device, wanted, &page), ZE_RESULT_SUCCESS);
      side.bytes = (wanted + page - 1) / page * page;
      side.here = Map(side, &kExported, side.memory);
    }
    for (size_t i = 0; i < 2; ++i) {
      const Side& owner = sides_[1 - i];
      ze_external_memory_export_fd_t exported{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr,
                                              ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, -1};
      ze_memory_allocation_properties_t properties{};
      properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
      properties.pNext = &exported;
      ASSERT_EQ(zeMemGetAllocProperties(owner.context, owner.here, &properties, nullptr), ZE_RESULT_SUCCESS);
      const ze_external_memory_import_fd_t imported{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr,
                                                    ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, exported.fd};
      sides_[i].peer = Map(sides_[i], &imported, sides_[i].imported);
      close(exported.fd);
    }
  }
  void Copy(const Side& side, void* to, const void* from, size_t bytes) {
    ASSERT_EQ(zeCommandListAppendMemoryCopy(side.list, to, from, bytes, nullptr, 0, nullptr),
              ZE_RESULT_SUCCESS);
  }

  Side sides_[2];
};

TEST_P(PeerTest, EachCopiesWhatTheOtherHas) {
  constexpr size_t kBytes = (size_t{6} << 20) + 4096;
  MapBoth(kBytes);
  for (size_t i = 0; i < 2; ++i) {
    const Side &target = sides_[i], &source = sides_[1 - i];
    for (uint64_t round = 0; round < 20; ++round) {
      std::vector<uint64_t> sent(kBytes / sizeof(uint64_t)), got(sent.size());
      std::iota(sent.begin(), sent.end(), round << 32 | i << 60);
      Copy(source, source.here, sent.data(), kBytes);
      Finish(source.list);
      Copy(target, target.here, target.peer, kBytes);
      Copy(target, got.data(), target.here, kBytes);
      Finish(target.list);
      ASSERT_EQ(sent, got) << i << " " << round;
    }
  }
}

// The owner frees it: who maps it still has it, so nothing that a copy reads can vanish under it.
TEST_P(PeerTest, MemoryStaysWhileItIsMapped) {
  constexpr size_t kBytes = size_t{2} << 20;
  MapBoth(kBytes);
  Side &target = sides_[0], &source = sides_[1];
  const std::vector<uint8_t> sent(kBytes, 77);
  Copy(source, source.here, sent.data(), kBytes);
  Finish(source.list);
  ASSERT_EQ(zeVirtualMemUnmap(source.context, source.here, source.bytes), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zePhysicalMemDestroy(source.context, source.memory), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeVirtualMemFree(source.context, source.here, source.bytes), ZE_RESULT_SUCCESS);
  source.here = nullptr;
  std::vector<uint8_t> got(kBytes);
  Copy(target, target.here, target.peer, kBytes);
  Copy(target, got.data(), target.here, kBytes);
  Finish(target.list);
  EXPECT_EQ(sent, got);
}

TEST_P(PeerTest, SaysHowFastItIs) {
  if (IsCpu()) GTEST_SKIP() << "the figure is of interest for GPUs";
  constexpr size_t kBytes = size_t{1} << 30;
  constexpr int kCopies = 10;
  MapBoth(kBytes);
  for (size_t i = 0; i < 2; ++i) {
    const Side& target = sides_[i];
    Copy(target, target.here, target.peer, kBytes);
    Finish(target.list);
    const auto began = std::chrono::steady_clock::now();
    for (int n = 0; n < kCopies; ++n) Copy(target, target.here, target.peer, kBytes);
    Finish(target.list);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::printf("to device %zu: %.1f GB/s\n", i, kCopies * static_cast<double>(kBytes) / took.count() / 1e9);
  }
}

INSTANTIATE_TEST_SUITE_P(On, PeerTest, ::testing::Values("cpu", "cuda"), NameOf);

}  // namespace
}  // namespace xpud::drivers
