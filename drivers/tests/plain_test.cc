// The CPU device as another vendor's driver shows a device (XPUD_CPU_PLAIN=1), through Debian's loader: API
// 1.3, none of our extensions, and lists that run later and keep no order but that of barriers.
#include <atomic>
#include <thread>

#include "drivers/tests/driver_under_test.h"

namespace xpud::drivers {
namespace {

std::atomic<bool> held{false};
std::atomic<bool> released{false};
std::atomic<uint64_t> launches{0};

void Hold(const void* const*, const uint32_t*, void*) {
  held.store(true);
  while (!released.load()) std::this_thread::yield();
}

// Stores how many launches ran before this one.
void Number(const void* const* args, const uint32_t*, void*) {
  **static_cast<uint64_t* const*>(args[0]) = launches.fetch_add(1);
}

constexpr uint32_t kSizes[] = {8};
constexpr xpud_host_kernel_t kKernels[] = {{"hold", Hold, 0, kSizes}, {"number", Number, 1, kSizes}};
constexpr xpud_host_module_t kModule = {XPUD_HOST_MODULE_VERSION, 2, kKernels};

class PlainTest : public DriverTest {
 protected:
  void SetUp() override {
    setenv("XPUD_CPU_PLAIN", "1", 1);
    Open();
    held = released = false;
    launches = 0;
  }

  bool Offers(const char* name) const {
    void* address = nullptr;
    return zeDriverGetExtensionFunctionAddress(driver_, name, &address) == ZE_RESULT_SUCCESS;
  }
  ze_result_t Allocate(const void* chain) const {
    const ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, chain, 0, 0};
    void* address = nullptr;
    const ze_result_t result = zeMemAllocDevice(context_, &desc, 4096, 64, device_, &address);
    if (result == ZE_RESULT_SUCCESS) EXPECT_EQ(zeMemFree(context_, address), ZE_RESULT_SUCCESS);
    return result;
  }
  // Appends a launch of "number" that stores at `out`.
  void AppendNumber(ze_command_list_handle_t list, ze_kernel_handle_t kernel, uint64_t* out,
                    ze_event_handle_t signal = nullptr, ze_event_handle_t wait = nullptr) const {
    const ze_group_count_t one = {1, 1, 1};
    ASSERT_EQ(zeKernelSetArgumentValue(kernel, 0, sizeof(out), static_cast<const void*>(&out)),
              ZE_RESULT_SUCCESS);
    ASSERT_EQ(zeCommandListAppendLaunchKernel(list, kernel, &one, signal, wait == nullptr ? 0 : 1,
                                              wait == nullptr ? nullptr : &wait),
              ZE_RESULT_SUCCESS);
  }
  // Appends `hold`, a barrier, two numbers with or without a barrier between them, and an event, and lets
  // them run. Returns whether the numbers ran in order.
  bool RunInOrder(bool barrier);
};

bool PlainTest::RunInOrder(bool barrier) {
  ze_module_handle_t const module = Module(XPUD_ZE_MODULE_FORMAT_HOST, &kModule, sizeof(kModule));
  ze_kernel_handle_t const hold = Kernel(module, "hold"), number = Kernel(module, "number");
  ze_command_list_handle_t const list = ImmediateList();
  uint64_t* const out = Shared<uint64_t>(2);
  ze_event_pool_handle_t const pool = Pool(1);
  ze_event_handle_t const event = Event(pool, 0);
  const ze_group_count_t one = {1, 1, 1};
  EXPECT_EQ(zeCommandListAppendLaunchKernel(list, hold, &one, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandListAppendBarrier(list, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  AppendNumber(list, number, &out[0]);
  if (barrier) EXPECT_EQ(zeCommandListAppendBarrier(list, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  AppendNumber(list, number, &out[1]);
  EXPECT_EQ(zeCommandListAppendBarrier(list, event, 0, nullptr), ZE_RESULT_SUCCESS);
  while (!held.load()) std::this_thread::yield();
  EXPECT_EQ(zeEventQueryStatus(event), ZE_RESULT_NOT_READY);
  EXPECT_EQ(launches.load(), 0u);  // a later command does not overtake the barrier
  released = true;
  EXPECT_EQ(zeEventHostSynchronize(event, UINT64_MAX), ZE_RESULT_SUCCESS);
  EXPECT_EQ(out[0] + out[1], 1u);
  const bool in_order = out[0] < out[1];
  EXPECT_EQ(zeEventDestroy(event), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(hold), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(number), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
  return in_order;
}

TEST_P(PlainTest, OffersNoneOfOurExtensionsButItsBackEnd) {
  for (const char* name : {"zeCommandListAppendLaunchKernelWithArguments", "zeCommandListHostSynchronize",
                           "xpudCommandListAppendWriteValue64", "zeCommandListBeginGraphCaptureExp",
                           "xpudModuleCreate", "xpudDeviceGetPeakRates", "zePhysicalMemGetProperties",
                           "zexDriverImportExternalPointer", "xpudDriverStartTrace"})
    EXPECT_FALSE(Offers(name)) << name;
  void* address = nullptr;
  ASSERT_EQ(zeDriverGetExtensionFunctionAddress(driver_, "xpudDriverGetBackEnd", &address),
            ZE_RESULT_SUCCESS);
  const xpud_back_end_t* back_end = nullptr;
  ASSERT_EQ(reinterpret_cast<xpud_pfnDriverGetBackEnd_t>(address)(driver_, &back_end), ZE_RESULT_SUCCESS);
  EXPECT_EQ(back_end->code, XPUD_CODE_HOST);
  EXPECT_EQ(back_end->synchronous, 0u);
  ze_api_version_t version = {};
  ASSERT_EQ(zeDriverGetApiVersion(driver_, &version), ZE_RESULT_SUCCESS);
  EXPECT_EQ(version, ZE_API_VERSION_1_3);
}

TEST_P(PlainTest, SharesNoMemoryWithOtherProcesses) {
  const ze_external_memory_export_desc_t exported = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                     ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
  EXPECT_EQ(Allocate(&exported), ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
  const ze_external_memory_import_fd_t imported = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr,
                                                   ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, 0};
  EXPECT_EQ(Allocate(&imported), ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
  ze_device_external_memory_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES;
  ASSERT_EQ(zeDeviceGetExternalMemoryProperties(device_, &properties), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.memoryAllocationExportTypes, 0u);
  EXPECT_EQ(Allocate(nullptr), ZE_RESULT_SUCCESS);
}

// As the specification says, and as other vendors' drivers do.
TEST_P(PlainTest, StartOfAReservationIsAHint) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(zeVirtualMemReserve(context_, nullptr, 4096, &first), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeVirtualMemReserve(context_, first, 4096, &second), ZE_RESULT_SUCCESS);
  EXPECT_NE(second, first);
  EXPECT_EQ(zeVirtualMemFree(context_, second, 4096), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeVirtualMemFree(context_, first, 4096), ZE_RESULT_SUCCESS);
  const ze_external_memory_export_desc_t exported = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                     ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
  ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, &exported, 0, 4096};
  ze_physical_mem_handle_t memory = nullptr;
  EXPECT_EQ(zePhysicalMemCreate(context_, device_, &desc, &memory), ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
  desc.pNext = nullptr;
  ASSERT_EQ(zePhysicalMemCreate(context_, device_, &desc, &memory), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zePhysicalMemDestroy(context_, memory), ZE_RESULT_SUCCESS);
}

// As a driver does that lists the extension, with what a test wants it to say.
TEST_P(PlainTest, SaysThePciAddressThatATestSets) {
  EXPECT_FALSE(Lists(ZE_PCI_PROPERTIES_EXT_NAME));
  ze_pci_ext_properties_t pci = {ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES, nullptr, {}, {}};
  setenv("XPUD_CPU_PCI", "10000:c7:1f.7,0000:17:00.0", 1);
  EXPECT_TRUE(Lists(ZE_PCI_PROPERTIES_EXT_NAME));
  ASSERT_EQ(zeDevicePciGetPropertiesExt(device_, &pci), ZE_RESULT_SUCCESS);
  EXPECT_EQ(pci.address.domain, 0x10000u);
  EXPECT_EQ(pci.address.bus, 0xc7u);
  EXPECT_EQ(pci.address.device, 0x1fu);
  EXPECT_EQ(pci.address.function, 7u);
  EXPECT_EQ(pci.maxSpeed.maxBandwidth, -1);
  setenv("XPUD_CPU_PCI", "none", 1);
  EXPECT_EQ(zeDevicePciGetPropertiesExt(device_, &pci), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  unsetenv("XPUD_CPU_PCI");
}

TEST_P(PlainTest, CommandsRunInOrderOnlyIfABarrierIsBetweenThem) {
  EXPECT_FALSE(RunInOrder(false));
  held = released = false;
  launches = 0;
  EXPECT_TRUE(RunInOrder(true));
}

INSTANTIATE_TEST_SUITE_P(On, PlainTest, ::testing::Values("cpu"), NameOf);

}  // namespace
}  // namespace xpud::drivers
