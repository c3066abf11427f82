// The driver under the loader's validation layer: valid calls work, and invalid calls are refused.
#include <unistd.h>

#include "drivers/tests/driver_under_test.h"
#include "drivers/tests/kernels_under_test.h"
#include "drivers/tests/placement.h"

namespace xpud::drivers {
namespace {

class ValidationTest : public DriverTest {
 protected:
  void SetUp() override {
    setenv("ZE_ENABLE_VALIDATION_LAYER", "1", 1);
    setenv("ZE_ENABLE_PARAMETER_VALIDATION", "1", 1);
    DriverTest::SetUp();
  }
};

// API 1.4's layer does not know the flag, but our driver does. So the refusal shows that the layer is active.
TEST_P(ValidationTest, ParametersAreCheckedBeforeTheDriverSeesThem) {
  ze_command_queue_desc_t desc{};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.flags = XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
  ze_command_list_handle_t list = nullptr;
  EXPECT_EQ(zeCommandListCreateImmediate(context_, device_, &desc, &list),
            ZE_RESULT_ERROR_INVALID_ENUMERATION)
      << "API 1.4's layer does not know the flag, which shows that it is in force";
}

TEST_P(ValidationTest, NativeKernelRunsWithBarriersAndEvents) {
  const std::string_view kernels = KernelsFor(GetParam());
  ze_module_handle_t module = Module(ZE_MODULE_FORMAT_NATIVE, kernels.data(), kernels.size());
  ze_kernel_handle_t kernel = Kernel(module, "table");
  ze_command_list_handle_t list = ImmediateList();
  ze_event_pool_handle_t pool = Pool(1);
  ze_event_handle_t done = Event(pool, 0);
  float* const out = Shared<float>(8);
  ASSERT_EQ(zeKernelSetGroupSize(kernel, 1, 1, 1), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeKernelSetArgumentValue(kernel, 0, sizeof(out), &out), ZE_RESULT_SUCCESS);
  const ze_group_count_t groups{4, 1, 1};
  ASSERT_EQ(zeCommandListAppendLaunchKernel(list, kernel, &groups, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListAppendBarrier(list, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeCommandListAppendMemoryCopy(list, out + 4, out, 16, done, 0, nullptr), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeEventHostSynchronize(done, UINT64_MAX), ZE_RESULT_SUCCESS);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[i], static_cast<float>(1 + i % 4));
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventDestroy(done), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeEventPoolDestroy(pool), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, out), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(kernel), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

// The layer does not know the HOST format: the loader refuses a descriptor that the driver itself accepts.
TEST_P(ValidationTest, HostModuleIsCreatedPastTheLayer) {
  constexpr xpud_host_kernel_t kKernels[] = {
      {"nothing", [](const void* const*, const uint32_t*, void*) {}, 0, nullptr}};
  const xpud_host_module_t table{XPUD_HOST_MODULE_VERSION, 1, kKernels};
  const ze_module_desc_t desc{ZE_STRUCTURE_TYPE_MODULE_DESC,
                              nullptr,
                              XPUD_ZE_MODULE_FORMAT_HOST,
                              sizeof(table),
                              reinterpret_cast<const uint8_t*>(&table),
                              nullptr,
                              nullptr};
  ze_module_handle_t module = nullptr;
  EXPECT_EQ(zeModuleCreate(context_, device_, &desc, &module, nullptr), ZE_RESULT_ERROR_INVALID_ENUMERATION);
  const auto create = Extension<xpud_pfnModuleCreate_t>("xpudModuleCreate");
  ASSERT_EQ(create(context_, device_, &desc, &module, nullptr), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeKernelDestroy(Kernel(module, "nothing")), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeModuleDestroy(module), ZE_RESULT_SUCCESS);
}

// The layer wants an address to reserve at, although the specification allows null.
TEST_P(ValidationTest, VirtualMemoryIsMappedAndUsed) {
  size_t page = 0;
  ASSERT_EQ(zeVirtualMemQueryPageSize(context_, device_, 1, &page), ZE_RESULT_SUCCESS);
  void* address = nullptr;
  EXPECT_EQ(zeVirtualMemReserve(context_, nullptr, page, &address), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
  ASSERT_EQ(zeVirtualMemReserve(context_, AtAddress(kPlaceForDevice), page, &address), ZE_RESULT_SUCCESS);
  const ze_external_memory_export_desc_t exported{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                  ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
  ze_physical_mem_desc_t desc{ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, &exported, 0, page};
  ze_physical_mem_handle_t memory = nullptr;
  ASSERT_EQ(zePhysicalMemCreate(context_, device_, &desc, &memory), ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeVirtualMemMap(context_, address, page, memory, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_NONE),
            ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeVirtualMemSetAccessAttribute(context_, address, page, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE),
            ZE_RESULT_SUCCESS);
  ze_memory_access_attribute_t access{};
  size_t same = 0;
  ASSERT_EQ(zeVirtualMemGetAccessAttribute(context_, address, page, &access, &same), ZE_RESULT_SUCCESS);
  EXPECT_EQ(access, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
  EXPECT_EQ(same, page);
  int fd = -1;
  ASSERT_EQ(ExportFd(context_, address, fd), ZE_RESULT_SUCCESS);
  close(fd);
  uint64_t* const word = Shared<uint64_t>(1);
  *word = 77;
  ze_command_list_handle_t list = ImmediateList();
  ASSERT_EQ(zeCommandListAppendMemoryCopy(list, address, word, 8, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  Finish(list);
  *word = 0;
  ASSERT_EQ(zeCommandListAppendMemoryCopy(list, word, address, 8, nullptr, 0, nullptr), ZE_RESULT_SUCCESS);
  Finish(list);
  EXPECT_EQ(*word, 77u);
  EXPECT_EQ(zeCommandListDestroy(list), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeMemFree(context_, word), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeVirtualMemUnmap(context_, address, page), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zePhysicalMemDestroy(context_, memory), ZE_RESULT_SUCCESS);
  EXPECT_EQ(zeVirtualMemFree(context_, address, page), ZE_RESULT_SUCCESS);
}

XPUD_ON_ALL_BACK_ENDS(ValidationTest);

}  // namespace
}  // namespace xpud::drivers
