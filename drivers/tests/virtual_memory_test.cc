// Reserved addresses and physical memory through Debian's loader.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "drivers/tests/driver_under_test.h"
#include "drivers/tests/kernels_under_test.h"
#include "drivers/tests/number.h"
#include "drivers/tests/placement.h"

namespace xpud::drivers {
namespace {

// In the environment of a child: the fd of exported memory.
constexpr char kImportVariable[] = "XPUD_TEST_IMPORT_FD";
constexpr auto kNone = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
constexpr auto kReadOnly = ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY;
constexpr auto kReadWrite = ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
constexpr ze_external_memory_export_desc_t kExportable{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                       ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};

class VirtualMemoryTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (driver_ == nullptr) return;
    ASSERT_EQ(zeVirtualMemQueryPageSize(context_, device_, 1, &page_), ZE_RESULT_SUCCESS);
    bytes_ = 4 * page_;
    properties_ = Extension<xpud_pfnPhysicalMemGetProperties_t>("zePhysicalMemGetProperties");
    list_ = ImmediateList();
  }
  void TearDown() override {
    if (list_ != nullptr) EXPECT_EQ(zeCommandListDestroy(list_), ZE_RESULT_SUCCESS);
    DriverTest::TearDown();
  }

  std::byte* Reserve(size_t size, uint64_t place = 0) {
    void* address = nullptr;
    EXPECT_EQ(zeVirtualMemReserve(context_, AtAddress(place), size, &address), ZE_RESULT_SUCCESS);
    return static_cast<std::byte*>(address);
  }
  ze_result_t ReserveAt(uint64_t place, size_t size) {
    void* address = nullptr;
    const ze_result_t result = zeVirtualMemReserve(context_, AtAddress(place), size, &address);
    if (result == ZE_RESULT_SUCCESS) EXPECT_EQ(zeVirtualMemFree(context_, address, size), ZE_RESULT_SUCCESS);
    return result;
  }
  ze_result_t Create(size_t size, const void* next, ze_physical_mem_handle_t* memory) {
    ze_physical_mem_desc_t desc{ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, next, 0, size};
    return zePhysicalMemCreate(context_, device_, &desc, memory);
  }
  ze_result_t Import(int fd, size_t size, ze_physical_mem_handle_t* memory) {
    const ze_external_memory_import_fd_t import{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr,
                                                ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, fd};
    return Create(size, &import, memory);
  }
  ze_physical_mem_handle_t Physical(size_t size, const void* next = nullptr) {
    ze_physical_mem_handle_t memory = nullptr;
    EXPECT_EQ(Create(size, next, &memory), ZE_RESULT_SUCCESS);
    return memory;
  }
  ze_result_t Map(void* address, size_t size, ze_physical_mem_handle_t memory, size_t offset = 0) {
    return zeVirtualMemMap(context_, address, size, memory, offset, kReadWrite);
  }
  ze_result_t Unmap(void* address, size_t size) { return zeVirtualMemUnmap(context_, address, size); }
  void Destroy(ze_physical_mem_handle_t memory) {
    EXPECT_EQ(zePhysicalMemDestroy(context_, memory), ZE_RESULT_SUCCESS);
  }
  void Free(void* address, size_t size) {
    EXPECT_EQ(zeVirtualMemFree(context_, address, size), ZE_RESULT_SUCCESS);
  }
  ze_result_t Export(ze_physical_mem_handle_t memory, int& fd) {
    ze_external_memory_export_fd_t exported{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr,
                                            ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, -1};
    xpud_physical_mem_properties_t properties{XPUD_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES, &exported, 0, 0};
    const ze_result_t result = properties_(context_, memory, &properties);
    fd = exported.fd;
    return result;
  }
  ze_memory_access_attribute_t AccessOf(const void* address, size_t size, size_t& same) {
    ze_memory_access_attribute_t access{};
    EXPECT_EQ(zeVirtualMemGetAccessAttribute(context_, address, size, &access, &same), ZE_RESULT_SUCCESS);
    return access;
  }
  ze_memory_allocation_properties_t PropertiesOf(const void* address, ze_device_handle_t& device) {
    ze_memory_allocation_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
    EXPECT_EQ(zeMemGetAllocProperties(context_, address, &properties, &device), ZE_RESULT_SUCCESS);
    return properties;
  }

  void Copy(void* to, const void* from, size_t size) {
    ASSERT_EQ(zeCommandListAppendMemoryCopy(list_, to, from, size, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
    Finish(list_);
  }
  std::vector<uint8_t> Read(const void* address, size_t size) {
    std::vector<uint8_t> bytes(size, 0xee);
    Copy(bytes.data(), address, size);
    return bytes;
  }
  void Write(void* address, uint8_t value, size_t size) {
    const std::vector<uint8_t> bytes(size, value);
    Copy(address, bytes.data(), size);
  }
  void ExpectAll(const void* address, uint8_t value, size_t size) {
    EXPECT_EQ(Read(address, size), std::vector<uint8_t>(size, value)) << int{value};
  }
  // Adds to the 64-bit words at `address`, by a kernel.
  void Add(void* address, uint64_t addend, uint32_t words) {
    const std::string_view native = KernelsFor(GetParam());
    ze_module_handle_t module = Module(ZE_MODULE_FORMAT_NATIVE, native.data(), native.size());
    ze_kernel_handle_t kernel = Kernel(module, "add");
    const void* const arguments[] = {&address, &addend};
    ASSERT_EQ(launch_(list_, kernel, {words, 1, 1}, {1, 1, 1}, arguments, nullptr, nullptr, 0, nullptr),
              ZE_RESULT_SUCCESS);
    Finish(list_);
    EXPECT_EQ(zeKernelDestroy(kernel), ZE_RESULT_SUCCESS);
    EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
  }
  // Whether the host may write there; the kernel says so without a fault. For the CPU device.
  bool HostWrites(void* address) {
    const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    const bool written = read(zeros, address, 1) == 1;
    close(zeros);
    return written;
  }
  uint64_t TotalMemory() {
    ze_device_memory_properties_t memory{};
    memory.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
    uint32_t count = 1;
    EXPECT_EQ(zeDeviceGetMemoryProperties(device_, &count, &memory), ZE_RESULT_SUCCESS);
    return memory.totalSize;
  }

  size_t page_ = 0;
  size_t bytes_ = 0;  // some pages
  xpud_pfnPhysicalMemGetProperties_t properties_ = nullptr;
  ze_command_list_handle_t list_ = nullptr;
};

TEST_P(VirtualMemoryTest, PageSizesAreThoseOfOtherMemory) {
  size_t large = 0;
  ASSERT_EQ(zeVirtualMemQueryPageSize(context_, device_, size_t{64} << 20, &large), ZE_RESULT_SUCCESS);
  EXPECT_EQ(page_, IsCpu() ? size_t{4096} : size_t{2} << 20);
  EXPECT_EQ(large, size_t{2} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(Reserve(large)) % large, 0u);  // the context gives it back
}

TEST_P(VirtualMemoryTest, ReservationBeginsWhereItWasAskedForAndKeepsOthersOut) {
  constexpr size_t kUnit = XPUD_MEM_ADDRESS_UNIT;
  std::byte* const base = Reserve(kUnit, kPlaceForDevice + kUnit);
  ASSERT_EQ(base, AtAddress(kPlaceForDevice + kUnit));
  for (const uint64_t place : {kPlaceForDevice, kPlaceForDevice + kUnit})
    EXPECT_EQ(ReserveAt(place, 2 * kUnit), ZE_RESULT_ERROR_OVERLAPPING_REGIONS) << place;
  const PlacedMemory placed(kPlaceForDevice + kUnit);
  void* address = nullptr;
  EXPECT_EQ(zeMemAllocDevice(context_, &placed.desc(), kUnit, 0, device_, &address),
            ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
  ze_physical_mem_handle_t memory = Physical(bytes_);
  for (int i = 0; i < 2; ++i) {  // reserved, then mapped and unmapped
    void* const taken = mmap(base, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    EXPECT_EQ(taken, MAP_FAILED);
    ASSERT_EQ(Map(base, bytes_, memory), ZE_RESULT_SUCCESS);
    ASSERT_EQ(Unmap(base, bytes_), ZE_RESULT_SUCCESS);
  }
  Destroy(memory);
  EXPECT_EQ(ReserveAt(kPlaceForDevice, kUnit), ZE_RESULT_SUCCESS) << "refusals took nothing";
  Free(base, kUnit);
  EXPECT_EQ(ReserveAt(kPlaceForDevice + kUnit, kUnit), ZE_RESULT_SUCCESS);
}

TEST_P(VirtualMemoryTest, PlaceThatTheProcessUsesIsRefused) {
  constexpr size_t kUnit = XPUD_MEM_ADDRESS_UNIT;
  void* const mine = mmap(AtAddress(kPlaceForDevice), 4096, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(mine, AtAddress(kPlaceForDevice));
  std::memset(mine, 9, 4096);
  EXPECT_EQ(ReserveAt(kPlaceForDevice, kUnit), ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
  EXPECT_EQ(static_cast<const uint8_t*>(mine)[4095], 9);
  ASSERT_EQ(munmap(mine, 4096), 0);
  EXPECT_EQ(ReserveAt(kPlaceForDevice, kUnit), ZE_RESULT_SUCCESS);
}

// It is not taken for a place that is in use: another place would not help.
TEST_P(VirtualMemoryTest, ProcessWithoutAddressSpaceIsOutOfMemory) {
  if (!IsCpu()) GTEST_SKIP() << "CUDA reserves addresses of its own at any time";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit none{1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  const ze_result_t result = ReserveAt(kPlaceForDevice, XPUD_MEM_ADDRESS_UNIT);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(result, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
  EXPECT_EQ(ReserveAt(kPlaceForDevice, XPUD_MEM_ADDRESS_UNIT), ZE_RESULT_SUCCESS);
}

TEST_P(VirtualMemoryTest, OtherMemoryAtTheSameAddressIsZeroAndTheOldComesBack) {
  std::byte* const base = Reserve(bytes_, kPlaceForDevice);
  ze_physical_mem_handle_t first = Physical(bytes_);
  ze_physical_mem_handle_t second = Physical(bytes_);
  ASSERT_EQ(Map(base, bytes_, first), ZE_RESULT_SUCCESS);
  ExpectAll(base, 0, bytes_);
  Write(base, 3, bytes_);
  Add(base, 0x0101010101010101, static_cast<uint32_t>(page_ / sizeof(uint64_t)));
  ExpectAll(base, 4, page_);
  ExpectAll(base + page_, 3, bytes_ - page_);
  const uint8_t pattern = 4;
  ASSERT_EQ(
      zeCommandListAppendMemoryFill(list_, base + page_, &pattern, 1, bytes_ - page_, nullptr, 0, nullptr),
      ZE_RESULT_SUCCESS);
  Finish(list_);
  ASSERT_EQ(Unmap(base, bytes_), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Map(base, bytes_, second), ZE_RESULT_SUCCESS);
  ExpectAll(base, 0, bytes_);
  Write(base, 5, bytes_);
  ASSERT_EQ(Unmap(base, bytes_), ZE_RESULT_SUCCESS);
  Destroy(second);
  ASSERT_EQ(Map(base, bytes_, first), ZE_RESULT_SUCCESS);
  ExpectAll(base, 4, bytes_);
  Free(base, bytes_);  // unmaps
  Destroy(first);
}

TEST_P(VirtualMemoryTest, OneMemoryIsMappedAtTwoAddresses) {
  std::byte* const one = Reserve(bytes_);
  std::byte* const other = Reserve(2 * bytes_);
  ze_physical_mem_handle_t memory = Physical(bytes_);
  ASSERT_EQ(Map(one, bytes_, memory), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Map(other + bytes_, bytes_, memory), ZE_RESULT_SUCCESS);
  Write(one, 7, bytes_);
  ExpectAll(other + bytes_, 7, bytes_);
  Copy(other + bytes_, one, page_);  // onto itself
  EXPECT_EQ(zePhysicalMemDestroy(context_, memory), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
  ASSERT_EQ(Unmap(one, bytes_), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zePhysicalMemDestroy(context_, memory), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
  ExpectAll(other + bytes_, 7, bytes_);
  Free(other, 2 * bytes_);
  Destroy(memory);
  EXPECT_EQ(zePhysicalMemDestroy(context_, memory), ZE_RESULT_ERROR_INVALID_ARGUMENT) << "destroyed twice";
  Free(one, bytes_);
}

TEST_P(VirtualMemoryTest, MemoryMappedSideBySideIsOneRange) {
  std::byte* const base = Reserve(3 * bytes_);
  ze_physical_mem_handle_t first = Physical(bytes_);
  ze_physical_mem_handle_t second = Physical(bytes_);
  ASSERT_EQ(Map(base, bytes_, first), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Map(base + bytes_, bytes_, second), ZE_RESULT_SUCCESS);
  Write(base, 6, 2 * bytes_);
  ExpectAll(base + page_, 6, 2 * bytes_ - page_);
  for (std::byte* const taken : {base, base + bytes_})
    EXPECT_EQ(Map(taken, bytes_, first), ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
  ASSERT_EQ(Unmap(base, 3 * bytes_), ZE_RESULT_SUCCESS) << "two mappings, and pages without one";
  EXPECT_EQ(Unmap(base, 3 * bytes_), ZE_RESULT_SUCCESS);
  Destroy(first);
  Destroy(second);
  Free(base, 3 * bytes_);
}

TEST_P(VirtualMemoryTest, MappedAddressesHaveTheirMemorysProperties) {
  std::byte* const base = Reserve(2 * bytes_);
  ze_physical_mem_handle_t memory = Physical(bytes_);
  xpud_physical_mem_properties_t physical{XPUD_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES, nullptr, 0, 0};
  ASSERT_EQ(properties_(context_, memory, &physical), ZE_RESULT_SUCCESS);
  EXPECT_EQ(physical.size, bytes_);
  ze_device_handle_t device = nullptr;
  void* found = nullptr;
  size_t size = 0;
  EXPECT_EQ(PropertiesOf(base, device).type, ZE_MEMORY_TYPE_UNKNOWN) << "only reserved";
  EXPECT_EQ(zeMemGetAddressRange(context_, base, &found, &size), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(Map(base + page_, bytes_, memory), ZE_RESULT_SUCCESS);
  const ze_memory_allocation_properties_t properties = PropertiesOf(base + page_ + bytes_ - 1, device);
  EXPECT_EQ(properties.type, ZE_MEMORY_TYPE_DEVICE);
  EXPECT_EQ(properties.id, physical.id);
  EXPECT_EQ(properties.pageSize, page_);
  EXPECT_EQ(device, device_);
  ASSERT_EQ(zeMemGetAddressRange(context_, base + page_ + 5, &found, &size), ZE_RESULT_SUCCESS);
  EXPECT_EQ(found, base + page_);
  EXPECT_EQ(size, bytes_);
  EXPECT_EQ(PropertiesOf(base, device).type, ZE_MEMORY_TYPE_UNKNOWN);
  EXPECT_EQ(PropertiesOf(base + page_ + bytes_, device).type, ZE_MEMORY_TYPE_UNKNOWN);
  EXPECT_EQ(zeMemFree(context_, base + page_), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(Unmap(base + page_, bytes_), ZE_RESULT_SUCCESS);
  EXPECT_EQ(PropertiesOf(base + page_, device).type, ZE_MEMORY_TYPE_UNKNOWN);
  Destroy(memory);
  Free(base, 2 * bytes_);
}

TEST_P(VirtualMemoryTest, AccessIsOfWholeMappingsOrOfPages) {
  std::byte* const base = Reserve(2 * bytes_);
  ze_physical_mem_handle_t memory = Physical(bytes_);
  size_t same = 0;
  EXPECT_EQ(AccessOf(base, 2 * bytes_, same), kNone);
  EXPECT_EQ(same, 2 * bytes_);
  ASSERT_EQ(zeVirtualMemMap(context_, base, bytes_, memory, 0, kNone), ZE_RESULT_SUCCESS);
  EXPECT_EQ(AccessOf(base, 2 * bytes_, same), kNone);
  EXPECT_EQ(same, 2 * bytes_);
  ASSERT_EQ(zeVirtualMemSetAccessAttribute(context_, base, bytes_, kReadWrite), ZE_RESULT_SUCCESS);
  EXPECT_EQ(AccessOf(base, 2 * bytes_, same), kReadWrite);
  EXPECT_EQ(same, bytes_);
  Write(base, 2, bytes_);
  const ze_result_t read_only = zeVirtualMemSetAccessAttribute(context_, base, bytes_, kReadOnly);
  if (read_only == ZE_RESULT_SUCCESS)
    EXPECT_EQ(AccessOf(base, page_, same), kReadOnly);
  else
    EXPECT_TRUE(!IsCpu() && read_only == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) << read_only;
  ExpectAll(base, 2, bytes_);
  const ze_result_t of_part = zeVirtualMemSetAccessAttribute(context_, base + page_, page_, kNone);
  EXPECT_EQ(of_part, IsCpu() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  if (IsCpu()) {
    EXPECT_FALSE(HostWrites(base)) << "read only";
    EXPECT_FALSE(HostWrites(base + page_));
    EXPECT_EQ(AccessOf(base, bytes_, same), kReadOnly);
    EXPECT_EQ(same, page_);
    EXPECT_EQ(AccessOf(base + page_, bytes_, same), kNone);
    EXPECT_EQ(same, page_);
    ASSERT_EQ(zeVirtualMemSetAccessAttribute(context_, base, bytes_, kReadWrite), ZE_RESULT_SUCCESS);
    EXPECT_EQ(AccessOf(base, bytes_, same), kReadWrite);
    EXPECT_EQ(same, bytes_);
    EXPECT_TRUE(HostWrites(base + page_));
  }
  ASSERT_EQ(Unmap(base, bytes_), ZE_RESULT_SUCCESS);
  EXPECT_EQ(AccessOf(base, 2 * bytes_, same), kNone) << "unmapping takes access away";
  EXPECT_EQ(same, 2 * bytes_);
  if (IsCpu()) EXPECT_FALSE(HostWrites(base));
  Destroy(memory);
  Free(base, 2 * bytes_);
}

TEST_P(VirtualMemoryTest, ReservedPagesKeepAnAttributeUntilTheyAreMapped) {
  std::byte* const base = Reserve(bytes_);
  size_t same = 0;
  ASSERT_EQ(zeVirtualMemSetAccessAttribute(context_, base, bytes_, kReadWrite), ZE_RESULT_SUCCESS);
  EXPECT_EQ(AccessOf(base, bytes_, same), kReadWrite);
  EXPECT_EQ(same, bytes_);
  if (IsCpu()) EXPECT_FALSE(HostWrites(base)) << "nothing is there";
  ze_physical_mem_handle_t memory = Physical(page_);
  ASSERT_EQ(zeVirtualMemMap(context_, base + page_, page_, memory, 0, kNone), ZE_RESULT_SUCCESS);
  EXPECT_EQ(AccessOf(base, bytes_, same), kReadWrite);
  EXPECT_EQ(same, page_);
  EXPECT_EQ(AccessOf(base + page_, page_, same), kNone);
  EXPECT_EQ(AccessOf(base + 2 * page_, page_, same), kReadWrite);
  Free(base, bytes_);
  Destroy(memory);
}

TEST_P(VirtualMemoryTest, PagesOfAMappingComeAndGoByThemselves) {
  std::byte* const base = Reserve(bytes_);
  ze_physical_mem_handle_t memory = Physical(bytes_);
  ASSERT_EQ(Map(base, bytes_, memory), ZE_RESULT_SUCCESS);
  Write(base, 1, bytes_);
  Write(base + page_, 2, page_);
  const ze_result_t divided = Unmap(base + page_, page_);
  if (!IsCpu()) {
    EXPECT_EQ(divided, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    ExpectAll(base + page_, 2, page_);
    ASSERT_EQ(Unmap(base, bytes_), ZE_RESULT_SUCCESS);
    EXPECT_EQ(Map(base, page_, memory, page_), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    const ze_result_t first_page = Map(base, page_, memory);
    EXPECT_TRUE(first_page == ZE_RESULT_SUCCESS || first_page == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    std::printf("CUDA maps a part of physical memory: %s\n", first_page == ZE_RESULT_SUCCESS ? "yes" : "no");
  } else {
    ASSERT_EQ(divided, ZE_RESULT_SUCCESS);
    EXPECT_FALSE(HostWrites(base + page_));
    ExpectAll(base, 1, page_);
    ExpectAll(base + 2 * page_, 1, 2 * page_);
    void* found = nullptr;
    size_t size = 0;
    ASSERT_EQ(zeMemGetAddressRange(context_, base + bytes_ - 1, &found, &size), ZE_RESULT_SUCCESS);
    EXPECT_EQ(found, base + 2 * page_);
    EXPECT_EQ(size, 2 * page_);
    ASSERT_EQ(Map(base + page_, page_, memory, page_), ZE_RESULT_SUCCESS);
    ExpectAll(base + page_, 2, page_);
    EXPECT_EQ(Unmap(base, 3 * page_), ZE_RESULT_SUCCESS);
    ExpectAll(base + 3 * page_, 1, page_);
    ASSERT_EQ(Map(base, page_, memory, page_), ZE_RESULT_SUCCESS);
    ExpectAll(base, 2, page_);
  }
  Free(base, bytes_);
  Destroy(memory);
}

// Runs in the child of the next test: adds one to every byte of the memory that it inherited.
TEST_P(VirtualMemoryTest, ChildAddsOne) {
  const char* const text = std::getenv(kImportVariable);
  if (text == nullptr) GTEST_SKIP() << "only for the child of MemoryIsSharedBetweenProcesses";
  const int fd = NumberIn(text);
  ASSERT_GE(fd, 0) << text;
  std::byte* const base = Reserve(bytes_, kPlaceForDevice);
  ze_physical_mem_handle_t memory = nullptr;
  ASSERT_EQ(Import(fd, bytes_, &memory), ZE_RESULT_SUCCESS);
  ASSERT_EQ(Map(base, bytes_, memory), ZE_RESULT_SUCCESS);
  Add(base, 0x0101010101010101, static_cast<uint32_t>(bytes_ / sizeof(uint64_t)));
  ASSERT_EQ(Unmap(base, bytes_), ZE_RESULT_SUCCESS);
  Destroy(memory);
  Free(base, bytes_);
}

TEST_P(VirtualMemoryTest, MemoryIsSharedBetweenProcesses) {
  std::byte* const base = Reserve(bytes_, kPlaceForDevice);
  ze_physical_mem_handle_t memory = Physical(bytes_, &kExportable);
  int fd = -1;
  ASSERT_EQ(Export(memory, fd), ZE_RESULT_SUCCESS) << "before it is mapped";
  ASSERT_EQ(Map(base, bytes_, memory), ZE_RESULT_SUCCESS);
  Write(base, 41, bytes_);
  const pid_t child = fork();
  if (child == 0) {
    fcntl(fd, F_SETFD, 0);
    setenv(kImportVariable, std::to_string(fd).c_str(), 1);
    const std::string filter = std::string("--gtest_filter=On/VirtualMemoryTest.ChildAddsOne/") + GetParam();
    execl("/proc/self/exe", "virtual_memory_test", filter.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(fd);
  ExpectAll(base, 42, bytes_);
  ASSERT_EQ(ExportFd(context_, base + page_, fd), ZE_RESULT_SUCCESS) << "of the memory that is mapped there";
  ASSERT_EQ(Unmap(base, bytes_), ZE_RESULT_SUCCESS);
  Destroy(memory);
  ASSERT_EQ(Import(fd, bytes_, &memory), ZE_RESULT_SUCCESS) << "the fd outlives the memory's handle";
  close(fd);
  ASSERT_EQ(Map(base, bytes_, memory), ZE_RESULT_SUCCESS);
  ExpectAll(base, 42, bytes_);
  Free(base, bytes_);
  Destroy(memory);
}

TEST_P(VirtualMemoryTest, OnlyMemoryMadeForItIsExportedAndOnlyMemoryIsImported) {
  std::byte* const base = Reserve(2 * bytes_);
  ze_physical_mem_handle_t memory = Physical(bytes_);
  int fd = -1;
  EXPECT_EQ(Export(memory, fd), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(Map(base, bytes_, memory), ZE_RESULT_SUCCESS);
  EXPECT_EQ(ExportFd(context_, base, fd), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(Unmap(base, bytes_), ZE_RESULT_SUCCESS);
  Destroy(memory);
  EXPECT_EQ(Import(-1, bytes_, &memory), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, static_cast<off_t>(bytes_)), 0);
  EXPECT_EQ(Import(unsealed, bytes_, &memory), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  close(unsealed);
  constexpr ze_external_memory_export_desc_t kDmaBuf{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                     ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
  EXPECT_EQ(Create(bytes_, &kDmaBuf, &memory), ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
  ze_physical_mem_handle_t small = Physical(bytes_, &kExportable);
  ASSERT_EQ(Export(small, fd), ZE_RESULT_SUCCESS);
  const ze_result_t larger = Import(fd, 2 * bytes_, &memory);
  if (IsCpu()) {
    EXPECT_EQ(larger, ZE_RESULT_ERROR_INVALID_SIZE);
  } else {
    ASSERT_EQ(larger, ZE_RESULT_SUCCESS);
    EXPECT_EQ(Map(base, 2 * bytes_, memory), ZE_RESULT_ERROR_INVALID_SIZE) << "CUDA knows when it maps";
    Destroy(memory);
  }
  close(fd);
  Destroy(small);
  Free(base, 2 * bytes_);
}

TEST_P(VirtualMemoryTest, ContextGivesBackWhatWasNotFreed) {
  const size_t most = TotalMemory() / 4 * 3 / page_ * page_;
  ze_physical_mem_handle_t last = nullptr;
  for (int i = 0; i < 3; ++i) {
    const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    ze_context_handle_t context = nullptr;
    ASSERT_EQ(zeContextCreate(driver_, &desc, &context), ZE_RESULT_SUCCESS);
    ze_physical_mem_desc_t physical{ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, 0, most};
    ze_physical_mem_handle_t memory = nullptr;
    ASSERT_EQ(zePhysicalMemCreate(context, device_, &physical, &memory), ZE_RESULT_SUCCESS);
    ze_physical_mem_handle_t more = nullptr;
    EXPECT_EQ(Create(most, nullptr, &more), ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    void* address = nullptr;
    ASSERT_EQ(zeVirtualMemReserve(context, AtAddress(kPlaceForDevice), most, &address), ZE_RESULT_SUCCESS);
    ASSERT_EQ(zeVirtualMemMap(context, address, most, memory, 0, kReadWrite), ZE_RESULT_SUCCESS);
    last = memory;
    ASSERT_EQ(zeContextDestroy(context), ZE_RESULT_SUCCESS);
  }
  EXPECT_EQ(zePhysicalMemDestroy(context_, last), ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_P(VirtualMemoryTest, WhatIsNoRangeOfPagesIsRefused) {
  std::byte* const base = Reserve(bytes_);
  ze_physical_mem_handle_t memory = Physical(bytes_);
  void* out = nullptr;
  size_t same = 0;
  ze_memory_access_attribute_t access{};
  const auto wrong = static_cast<ze_memory_access_attribute_t>(3);
  struct Range {
    const char* text;
    void* address;
    size_t size;
    ze_result_t result;
  };
  const Range ranges[] = {
      {"null", nullptr, page_, ZE_RESULT_ERROR_INVALID_NULL_POINTER},
      {"nothing", base, 0, ZE_RESULT_ERROR_UNSUPPORTED_SIZE},
      {"part of a page", base, page_ - 1, ZE_RESULT_ERROR_UNSUPPORTED_SIZE},
      {"inside a page", base + 8, page_, ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT},
      {"not reserved", AtAddress(kPlaceForDevice), page_, ZE_RESULT_ERROR_INVALID_ARGUMENT},
      {"begins before", base - page_, 2 * page_, ZE_RESULT_ERROR_INVALID_ARGUMENT},
      {"ends behind", base + page_, bytes_, ZE_RESULT_ERROR_INVALID_ARGUMENT},
      {"wraps", base + page_, SIZE_MAX - page_ + 1, ZE_RESULT_ERROR_INVALID_ARGUMENT},
  };
  for (const auto& [text, address, size, result] : ranges) {
    const bool larger = size > bytes_;
    EXPECT_EQ(Map(address, size, memory), larger ? ZE_RESULT_ERROR_INVALID_SIZE : result) << text;
    EXPECT_EQ(Unmap(address, size), result) << text;
    EXPECT_EQ(zeVirtualMemSetAccessAttribute(context_, address, size, kNone), result) << text;
    EXPECT_EQ(zeVirtualMemGetAccessAttribute(context_, address, size, &access, &same), result) << text;
    EXPECT_EQ(zeVirtualMemFree(context_, address, size), result) << text;
  }
  EXPECT_EQ(zeVirtualMemFree(context_, base, page_), ZE_RESULT_ERROR_INVALID_SIZE) << "not a part";
  EXPECT_EQ(Map(base, bytes_, memory, page_), ZE_RESULT_ERROR_INVALID_SIZE) << "ends behind the memory";
  EXPECT_EQ(Map(base, page_, memory, bytes_ + page_), ZE_RESULT_ERROR_INVALID_SIZE);
  EXPECT_EQ(Map(base, page_, memory, 8), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  EXPECT_EQ(zeVirtualMemMap(context_, base, page_, memory, 0, wrong), ZE_RESULT_ERROR_INVALID_ENUMERATION);
  EXPECT_EQ(zeVirtualMemSetAccessAttribute(context_, base, page_, wrong),
            ZE_RESULT_ERROR_INVALID_ENUMERATION);
  EXPECT_EQ(zeVirtualMemGetAccessAttribute(context_, base, page_, nullptr, &same),
            ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  EXPECT_EQ(zeVirtualMemGetAccessAttribute(context_, base, page_, &access, nullptr),
            ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  EXPECT_EQ(zeVirtualMemReserve(context_, nullptr, page_, nullptr), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  EXPECT_EQ(zeVirtualMemReserve(context_, nullptr, 0, &out), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  EXPECT_EQ(zeVirtualMemReserve(context_, nullptr, page_ + 1, &out), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  EXPECT_EQ(ReserveAt(kPlaceForDevice + 8, page_), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  EXPECT_NE(zeVirtualMemReserve(context_, nullptr, SIZE_MAX - page_ + 1, &out), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeVirtualMemQueryPageSize(context_, device_, 0, &same), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  EXPECT_EQ(zeVirtualMemQueryPageSize(context_, device_, 1, nullptr), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  Destroy(memory);
  Free(base, bytes_);
}

TEST_P(VirtualMemoryTest, WhatIsNoPhysicalMemoryIsRefused) {
  ze_physical_mem_handle_t memory = nullptr;
  EXPECT_EQ(Create(0, nullptr, &memory), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  EXPECT_EQ(Create(page_ + 1, nullptr, &memory), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
  EXPECT_EQ(Create(SIZE_MAX - page_ + 1, nullptr, &memory), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
  EXPECT_EQ(Create(page_, nullptr, nullptr), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  EXPECT_EQ(zePhysicalMemCreate(context_, device_, nullptr, &memory), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  ze_physical_mem_desc_t desc{ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, 2, page_};
  EXPECT_EQ(zePhysicalMemCreate(context_, device_, &desc, &memory), ZE_RESULT_ERROR_INVALID_ENUMERATION);
  desc.flags = 0;
  EXPECT_EQ(zePhysicalMemCreate(context_, nullptr, &desc, &memory), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  EXPECT_EQ(zePhysicalMemCreate(nullptr, device_, &desc, &memory), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(zePhysicalMemDestroy(context_, nullptr), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
}

TEST_P(VirtualMemoryTest, HandlesAreChecked) {
  std::byte* const base = Reserve(page_);
  ze_physical_mem_handle_t memory = Physical(page_);
  void* out = nullptr;
  size_t size = 0;
  ze_memory_access_attribute_t access{};
  for (const bool null : {true, false}) {
    const auto context = null ? nullptr : reinterpret_cast<ze_context_handle_t>(device_);
    const auto stranger = null ? nullptr : reinterpret_cast<ze_physical_mem_handle_t>(device_);
    const auto result = null ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    EXPECT_EQ(zeVirtualMemReserve(context, nullptr, page_, &out), result);
    EXPECT_EQ(zeVirtualMemFree(context, base, page_), result);
    EXPECT_EQ(zeVirtualMemQueryPageSize(context, device_, 1, &size), result);
    EXPECT_EQ(zeVirtualMemMap(context, base, page_, memory, 0, kReadWrite), result);
    EXPECT_EQ(zeVirtualMemMap(context_, base, page_, stranger, 0, kReadWrite), result);
    EXPECT_EQ(zeVirtualMemUnmap(context, base, page_), result);
    EXPECT_EQ(zeVirtualMemSetAccessAttribute(context, base, page_, kNone), result);
    EXPECT_EQ(zeVirtualMemGetAccessAttribute(context, base, page_, &access, &size), result);
    EXPECT_EQ(zePhysicalMemDestroy(context, memory), result);
  }
  EXPECT_EQ(zeVirtualMemQueryPageSize(context_, nullptr, 1, &size), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ze_context_handle_t other = nullptr;
  ASSERT_EQ(zeContextCreate(driver_, &desc, &other), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zePhysicalMemDestroy(other, memory), ZE_RESULT_ERROR_INVALID_ARGUMENT) << "another context's";
  ASSERT_EQ(zeVirtualMemReserve(other, nullptr, page_, &out), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeVirtualMemMap(other, out, page_, memory, 0, kReadWrite), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Map(out, page_, memory), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(zeContextDestroy(other), ZE_RESULT_SUCCESS);
  Destroy(memory);
  Free(base, page_);
}

XPUD_ON_ALL_BACK_ENDS(VirtualMemoryTest);

}  // namespace
}  // namespace xpud::drivers
