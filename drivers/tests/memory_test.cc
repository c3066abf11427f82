// Memory through Debian's loader: properties, export and import between two processes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>

#include "drivers/tests/driver_under_test.h"
#include "drivers/tests/number.h"
#include "drivers/tests/placement.h"

namespace xpud::drivers {
namespace {

// In the environment of a child: the fd of exported memory, and its size.
constexpr char kImportVariable[] = "XPUD_TEST_IMPORT_FD";
constexpr size_t kBytes = size_t{1} << 20;

class MemoryTest : public DriverTest {
 protected:
  ze_result_t AllocDevice(size_t size, size_t alignment, const void* next, void** address) {
    const ze_device_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, next, 0, 0};
    return zeMemAllocDevice(context_, &desc, size, alignment, device_, address);
  }
  ze_result_t AllocPlaced(uint64_t place, size_t size, void** address, int import_fd = -1) {
    return AllocDevice(size, 0, PlacedMemory(place, import_fd).next(), address);
  }
  ze_result_t Import(int fd, size_t size, void** address) {
    const ze_external_memory_import_fd_t import{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr,
                                                ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, fd};
    return AllocDevice(size, 0, &import, address);
  }
  ze_result_t AllocExportable(size_t size, void** address) {
    const ze_external_memory_export_desc_t desc{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
    return AllocDevice(size, 0, &desc, address);
  }
  ze_result_t Export(const void* address, int& fd) { return ExportFd(context_, address, fd); }
  // Copies kBytes of device memory to the host.
  std::vector<uint8_t> Read(const void* address) {
    std::vector<uint8_t> bytes(kBytes);
    Copy(bytes.data(), address);
    return bytes;
  }
  void Write(void* address, const std::vector<uint8_t>& bytes) { Copy(address, bytes.data()); }
  void Copy(void* to, const void* from) {
    ze_command_list_handle_t list = ImmediateList();
    EXPECT_EQ(zeCommandListAppendMemoryCopy(list, to, from, kBytes, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
    Finish(list);
    EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  }
};

TEST_P(MemoryTest, NewMemoryIsZeroAlignedAndFoundByAnyAddressInside) {
  void* address = nullptr;
  ASSERT_EQ(AllocDevice((size_t{5} << 20) + 3, size_t{1} << 16, nullptr, &address), ZE_RESULT_SUCCESS);
  auto* const bytes = static_cast<uint8_t*>(address);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % (size_t{1} << 16), 0u);
  if (IsCpu()) EXPECT_TRUE(std::all_of(bytes, bytes + (size_t{5} << 20), [](uint8_t b) { return b == 0; }));
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  ze_device_handle_t device = nullptr;
  ASSERT_EQ(zeMemGetAllocProperties(context_, bytes + 1000, &properties, &device), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.type, ZE_MEMORY_TYPE_DEVICE);
  EXPECT_EQ(device, device_);
  void* base = nullptr;
  size_t size = 0;
  ASSERT_EQ(zeMemGetAddressRange(context_, bytes + 1000, &base, &size), ZE_RESULT_SUCCESS);
  EXPECT_EQ(base, address);
  EXPECT_EQ(size, (size_t{5} << 20) + 3);
  ASSERT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_ERROR_INVALID_ARGUMENT) << "freed twice";
  ASSERT_EQ(zeMemGetAllocProperties(context_, bytes + 1000, &properties, &device), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.type, ZE_MEMORY_TYPE_UNKNOWN);
}

TEST_P(MemoryTest, HostMemoryBelongsToNoDevice) {
  const ze_host_mem_alloc_desc_t desc{ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  void* address = nullptr;
  ASSERT_EQ(zeMemAllocHost(context_, &desc, 100, 64, &address), ZE_RESULT_SUCCESS);
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  ze_device_handle_t device = device_;
  ASSERT_EQ(zeMemGetAllocProperties(context_, address, &properties, &device), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.type, ZE_MEMORY_TYPE_HOST);
  EXPECT_EQ(device, nullptr);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
}

TEST_P(MemoryTest, WhatCannotBeAllocatedIsRefused) {
  void* address = nullptr;
  EXPECT_EQ(AllocDevice(0, 0, nullptr, &address), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  EXPECT_EQ(AllocDevice(SIZE_MAX - 5, 0, nullptr, &address), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  EXPECT_EQ(AllocDevice(100, 3, nullptr, &address), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  ze_device_memory_properties_t memory{};
  memory.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  uint32_t count = 1;
  ASSERT_EQ(zeDeviceGetMemoryProperties(device_, &count, &memory), ZE_RESULT_SUCCESS);
  void* most = nullptr;
  ASSERT_EQ(AllocDevice(memory.totalSize / 4 * 3, 0, nullptr, &most), ZE_RESULT_SUCCESS);
  EXPECT_EQ(AllocDevice(memory.totalSize / 2, 0, nullptr, &address), ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
  ASSERT_EQ(zeMemFree(context_, most), ZE_RESULT_SUCCESS);
  ASSERT_EQ(AllocDevice(memory.totalSize / 2, 0, nullptr, &address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
}

TEST_P(MemoryTest, ContextGivesBackWhatWasNotFreed) {
  ze_device_memory_properties_t memory{};
  memory.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  uint32_t count = 1;
  ASSERT_EQ(zeDeviceGetMemoryProperties(device_, &count, &memory), ZE_RESULT_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    ze_context_handle_t context = nullptr;
    ASSERT_EQ(zeContextCreate(driver_, &desc, &context), ZE_RESULT_SUCCESS);
    const ze_device_mem_alloc_desc_t device{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
    void* address = nullptr;
    EXPECT_EQ(zeMemAllocDevice(context, &device, memory.totalSize / 4 * 3, 0, device_, &address),
              ZE_RESULT_SUCCESS);
    ASSERT_EQ(zeContextDestroy(context), ZE_RESULT_SUCCESS);
  }
}

TEST_P(MemoryTest, OnlyMemoryMadeForItCanBeExported) {
  void* address = nullptr;
  ASSERT_EQ(AllocDevice(kBytes, 0, nullptr, &address), ZE_RESULT_SUCCESS);
  int fd = -1;
  EXPECT_EQ(Export(address, fd), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
}

TEST_P(MemoryTest, ImportRefusesWhatCouldFault) {
  void* address = nullptr;
  EXPECT_EQ(Import(-1, kBytes, &address), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, kBytes), 0);
  EXPECT_EQ(Import(unsealed, kBytes, &address), ZE_RESULT_ERROR_INVALID_ARGUMENT)
      << "it could shrink, and is no device memory";
  close(unsealed);
  void* exported = nullptr;
  int fd = -1;
  ASSERT_EQ(AllocExportable(size_t{2} << 20, &exported), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Export(exported, fd), ZE_RESULT_SUCCESS);
  EXPECT_EQ(Import(fd, (size_t{2} << 20) + 1, &address), ZE_RESULT_ERROR_INVALID_SIZE);
  ASSERT_EQ(Import(fd, size_t{2} << 20, &address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, exported), ZE_RESULT_SUCCESS);
  close(fd);
}

TEST_P(MemoryTest, AnyMemfdThatCannotShrinkIsImported) {
  if (!IsCpu()) GTEST_SKIP() << "only the CPU's device memory is a memfd";
  void* address = nullptr;
  const int sealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(sealed, kBytes), 0);
  ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(Import(sealed, kBytes + 1, &address), ZE_RESULT_ERROR_INVALID_SIZE);
  ASSERT_EQ(Import(sealed, kBytes, &address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
  close(sealed);
}

// Runs in the child of the next test: adds one to every byte of the memory that it inherited.
TEST_P(MemoryTest, ChildAddsOne) {
  const char* const text = std::getenv(kImportVariable);
  if (text == nullptr) GTEST_SKIP() << "only for the child of MemoryIsSharedBetweenProcesses";
  const int fd = NumberIn(text);
  ASSERT_GE(fd, 0) << text;
  void* address = nullptr;
  ASSERT_EQ(Import(fd, kBytes, &address), ZE_RESULT_SUCCESS);
  std::vector<uint8_t> bytes = Read(address);
  for (uint8_t& byte : bytes) ++byte;
  Write(address, bytes);
  ASSERT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
}

TEST_P(MemoryTest, MemoryIsSharedBetweenProcesses) {
  void* address = nullptr;
  ASSERT_EQ(AllocExportable(kBytes, &address), ZE_RESULT_SUCCESS);
  std::vector<uint8_t> bytes(kBytes);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  Write(address, bytes);
  int fd = -1;
  ASSERT_EQ(Export(address, fd), ZE_RESULT_SUCCESS);
  const pid_t child = fork();
  if (child == 0) {
    fcntl(fd, F_SETFD, 0);
    setenv(kImportVariable, std::to_string(fd).c_str(), 1);
    const std::string filter = std::string("--gtest_filter=On/MemoryTest.ChildAddsOne/") + GetParam();
    execl("/proc/self/exe", "memory_test", filter.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  bytes = Read(address);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(bytes[i], static_cast<uint8_t>(i + 1)) << i;
  ASSERT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
  // Closing the import leaves our fd open, and it outlives the allocation.
  ASSERT_EQ(Import(fd, kBytes, &address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(Read(address)[7], 8);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
  close(fd);
}

TEST_P(MemoryTest, PlacedMemoryLiesWhereItWasAskedFor) {
  constexpr size_t kChunk = XPUD_MEM_ADDRESS_UNIT;
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(AllocPlaced(kPlaceForDevice, kChunk, &first), ZE_RESULT_SUCCESS);
  EXPECT_EQ(first, AtAddress(kPlaceForDevice));
  ASSERT_EQ(AllocPlaced(kPlaceForDevice + kChunk, kBytes, &second), ZE_RESULT_SUCCESS) << "right behind it";
  EXPECT_EQ(second, AtAddress(kPlaceForDevice + kChunk));
  Write(first, std::vector<uint8_t>(kBytes, 3));
  Write(second, std::vector<uint8_t>(kBytes, 5));
  EXPECT_EQ(Read(first), std::vector<uint8_t>(kBytes, 3));
  EXPECT_EQ(Read(second), std::vector<uint8_t>(kBytes, 5));
  int fd = -1;
  ASSERT_EQ(Export(second, fd), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeMemFree(context_, first), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeMemFree(context_, second), ZE_RESULT_SUCCESS);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(AllocPlaced(kPlaceForDevice, kBytes, &first, fd), ZE_RESULT_SUCCESS) << "import " << i;
    EXPECT_EQ(first, AtAddress(kPlaceForDevice));
    EXPECT_EQ(Read(first), std::vector<uint8_t>(kBytes, static_cast<uint8_t>(5 + i)));
    Write(first, std::vector<uint8_t>(kBytes, static_cast<uint8_t>(6 + i)));
    ASSERT_EQ(zeMemFree(context_, first), ZE_RESULT_SUCCESS);
  }
  close(fd);
}

TEST_P(MemoryTest, PlainMemoryCanBePlacedAndIsNotExportable) {
  const xpud_mem_address_desc_t place{XPUD_STRUCTURE_TYPE_MEM_ADDRESS_DESC, nullptr,
                                      AtAddress(kPlaceForDevice)};
  void* address = nullptr;
  ASSERT_EQ(AllocDevice(kBytes, 0, &place, &address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(address, AtAddress(kPlaceForDevice));
  int fd = -1;
  EXPECT_EQ(Export(address, fd), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
}

TEST_P(MemoryTest, PlaceThatIsTakenIsRefusedAndStaysAsItWas) {
  constexpr size_t kChunk = XPUD_MEM_ADDRESS_UNIT;
  void* held = nullptr;
  void* address = nullptr;
  ASSERT_EQ(AllocPlaced(kPlaceForDevice + kChunk, kChunk, &held), ZE_RESULT_SUCCESS);
  Write(held, std::vector<uint8_t>(kBytes, 7));
  int fd = -1;
  ASSERT_EQ(Export(held, fd), ZE_RESULT_SUCCESS);
  for (const uint64_t place : {kPlaceForDevice, kPlaceForDevice + kChunk}) {
    const uint64_t size = 3 * kChunk - (place - kPlaceForDevice);
    EXPECT_EQ(AllocPlaced(place, size, &address), ZE_RESULT_ERROR_OVERLAPPING_REGIONS) << place;
    EXPECT_EQ(AllocPlaced(place, kChunk + kBytes, &address), ZE_RESULT_ERROR_OVERLAPPING_REGIONS) << place;
  }
  EXPECT_EQ(AllocPlaced(kPlaceForDevice + kChunk, kChunk, &address, fd), ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(Read(held), std::vector<uint8_t>(kBytes, 7));
  for (const uint64_t odd : {uint64_t{1}, uint64_t{2} << 20, uint64_t{kChunk} / 2})
    EXPECT_EQ(AllocPlaced(kPlaceForDevice + odd, kChunk, &address), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  EXPECT_EQ(AllocPlaced(0, kChunk, &address), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  if (kOtherPlacesAreLegal)
    EXPECT_EQ(AllocPlaced(0xfffffffff8000000, kChunk, &address), ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
  EXPECT_EQ(AllocDevice(kChunk, size_t{1} << 46, PlacedMemory(kPlaceForDevice).next(), &address),
            ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  const PlacedMemory place(kPlaceForDevice);
  const ze_host_mem_alloc_desc_t host{ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, place.next(), 0};
  EXPECT_EQ(zeMemAllocHost(context_, &host, kChunk, 0, &address), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  ASSERT_EQ(AllocPlaced(kPlaceForDevice, kChunk, &address), ZE_RESULT_SUCCESS) << "refusals took nothing";
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, held), ZE_RESULT_SUCCESS);
  close(fd);
}

TEST_P(MemoryTest, PlaceThatTheProcessUsesIsRefused) {
  constexpr size_t kChunk = size_t{2} << 20;
  void* const mine = mmap(AtAddress(kPlaceForDevice), kChunk, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(mine, AtAddress(kPlaceForDevice));
  std::memset(mine, 9, kChunk);
  void* address = nullptr;
  EXPECT_EQ(AllocPlaced(kPlaceForDevice, kChunk, &address), ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
  EXPECT_EQ(static_cast<const uint8_t*>(mine)[kChunk - 1], 9);
  ASSERT_EQ(munmap(mine, kChunk), 0);
  ASSERT_EQ(AllocPlaced(kPlaceForDevice, kChunk, &address), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
}

TEST_P(MemoryTest, DeferredFreeWaitsForQueuedWork) {
  ze_command_list_handle_t list = ImmediateList();
  ze_event_pool_handle_t pool = Pool(1);
  ze_event_handle_t gate = Event(pool, 0);
  uint64_t* const source = Shared<uint64_t>(1);
  uint64_t* const target = Shared<uint64_t>(1);
  *source = 77;
  ASSERT_EQ(zeCommandListAppendMemoryCopy(list, target, source, 8, nullptr, 1, &gate), ZE_RESULT_SUCCESS);
  const ze_memory_free_ext_desc_t desc{ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, nullptr,
                                       ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE};
  ASSERT_EQ(zeMemFreeExt(context_, &desc, source), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeEventHostSignal(gate), ZE_RESULT_SUCCESS);
  ASSERT_EQ(synchronize_(list, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(*target, 77u);
  EXPECT_EQ(zeEventDestroy(gate), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, target), ZE_RESULT_SUCCESS);
}

XPUD_ON_ALL_BACK_ENDS(MemoryTest);

}  // namespace
}  // namespace xpud::drivers
