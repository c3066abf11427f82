// For tests: Debian's loader with our library as its only driver, and common handles. Tests run once for each
// back end; the parameter is its name. A back end without a device skips its tests and reports the reason.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {

// The loader reads the variable at the first zeInit of the process. If it is already set, it names our
// library for a test that runs outside the build folder.
inline ze_result_t InitWithOurDriver() {
  setenv("ZE_ENABLE_ALT_DRIVERS", XPUD_DRIVER_PATH, 0);
  return zeInit(0);
}

class DriverTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Open();
    if (driver_ == nullptr) return;
    launch_ =
        Extension<xpud_pfnAppendLaunchKernelWithArguments_t>("zeCommandListAppendLaunchKernelWithArguments");
    synchronize_ = Extension<xpud_pfnCommandListHostSynchronize_t>("zeCommandListHostSynchronize");
    write_ = Extension<xpud_pfnAppendWriteValue64_t>("xpudCommandListAppendWriteValue64");
  }
  // Finds driver and device, and creates a context.
  void Open() {
    ASSERT_EQ(InitWithOurDriver(), ZE_RESULT_SUCCESS);
    FindDriver();
    if (driver_ == nullptr) GTEST_SKIP() << LoadReport();
    uint32_t count = 1;
    ASSERT_EQ(zeDeviceGet(driver_, &count, &device_), ZE_RESULT_SUCCESS);
    const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    ASSERT_EQ(zeContextCreate(driver_, &desc, &context_), ZE_RESULT_SUCCESS);
  }
  void TearDown() override {
    if (context_ != nullptr) EXPECT_EQ(zeContextDestroy(context_), ZE_RESULT_SUCCESS);
  }

  bool IsCpu() const { return std::strcmp(GetParam(), "cpu") == 0; }

  // The reasons of all back ends without a device.
  std::string LoadReport() {
    void* address = nullptr;
    EXPECT_EQ(zeDriverGetExtensionFunctionAddress(Drivers().front(), "xpudGetLoadReport", &address),
              ZE_RESULT_SUCCESS);
    const char* report = nullptr;
    EXPECT_EQ(reinterpret_cast<xpud_pfnGetLoadReport_t>(address)(&report), ZE_RESULT_SUCCESS);
    return report;
  }

  // Whether the driver lists the extension.
  bool Lists(std::string_view name) const {
    uint32_t count = 0;
    EXPECT_EQ(zeDriverGetExtensionProperties(driver_, &count, nullptr), ZE_RESULT_SUCCESS);
    std::vector<ze_driver_extension_properties_t> extensions(count);
    EXPECT_EQ(zeDriverGetExtensionProperties(driver_, &count, extensions.data()), ZE_RESULT_SUCCESS);
    for (const auto& extension : extensions)
      if (name == extension.name) return true;
    return false;
  }

  template <typename Function>
  Function Extension(const char* name) {
    void* address = nullptr;
    EXPECT_EQ(zeDriverGetExtensionFunctionAddress(driver_, name, &address), ZE_RESULT_SUCCESS) << name;
    return reinterpret_cast<Function>(address);
  }

  ze_command_list_handle_t ImmediateList(ze_command_queue_mode_t mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS) {
    ze_command_queue_desc_t desc{};
    desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    desc.mode = mode;
    ze_command_list_handle_t list = nullptr;
    EXPECT_EQ(zeCommandListCreateImmediate(context_, device_, &desc, &list), ZE_RESULT_SUCCESS);
    return list;
  }
  ze_event_pool_handle_t Pool(uint32_t count, ze_event_pool_flags_t flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE) {
    const ze_event_pool_desc_t desc{ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, flags, count};
    ze_event_pool_handle_t pool = nullptr;
    EXPECT_EQ(zeEventPoolCreate(context_, &desc, 1, &device_, &pool), ZE_RESULT_SUCCESS);
    return pool;
  }
  ze_event_handle_t Event(ze_event_pool_handle_t pool, uint32_t index) {
    const ze_event_desc_t desc{ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, index, 0, ZE_EVENT_SCOPE_FLAG_HOST};
    ze_event_handle_t event = nullptr;
    EXPECT_EQ(zeEventCreate(pool, &desc, &event), ZE_RESULT_SUCCESS);
    return event;
  }
  template <typename T>
  T* Shared(size_t count) {
    const ze_device_mem_alloc_desc_t device{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
    const ze_host_mem_alloc_desc_t host{ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
    void* address = nullptr;
    EXPECT_EQ(zeMemAllocShared(context_, &device, &host, count * sizeof(T), 0, device_, &address),
              ZE_RESULT_SUCCESS);
    return static_cast<T*>(address);
  }
  ze_module_handle_t Module(ze_module_format_t format, const void* input, size_t size) {
    const ze_module_desc_t desc{ZE_STRUCTURE_TYPE_MODULE_DESC,      nullptr, format, size,
                                static_cast<const uint8_t*>(input), nullptr, nullptr};
    ze_module_handle_t module = nullptr;
    EXPECT_EQ(zeModuleCreate(context_, device_, &desc, &module, nullptr), ZE_RESULT_SUCCESS);
    return module;
  }
  ze_kernel_handle_t Kernel(ze_module_handle_t module, const char* name) {
    const ze_kernel_desc_t desc{ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, name};
    ze_kernel_handle_t kernel = nullptr;
    EXPECT_EQ(zeKernelCreate(module, &desc, &kernel), ZE_RESULT_SUCCESS);
    return kernel;
  }

  static std::vector<ze_driver_handle_t> Drivers() {
    uint32_t count = 0;
    EXPECT_EQ(zeDriverGet(&count, nullptr), ZE_RESULT_SUCCESS);
    std::vector<ze_driver_handle_t> drivers(count);
    EXPECT_EQ(zeDriverGet(&count, drivers.data()), ZE_RESULT_SUCCESS);
    return drivers;
  }
  // Waits for all appended work.
  void Finish(ze_command_list_handle_t list) {
    ASSERT_EQ(synchronize_(list, kPatienceNs), ZE_RESULT_SUCCESS);
  }

  static constexpr uint64_t kPatienceNs = 20'000'000'000;

  ze_driver_handle_t driver_ = nullptr;
  ze_device_handle_t device_ = nullptr;
  ze_context_handle_t context_ = nullptr;
  xpud_pfnAppendLaunchKernelWithArguments_t launch_ = nullptr;
  xpud_pfnCommandListHostSynchronize_t synchronize_ = nullptr;
  xpud_pfnAppendWriteValue64_t write_ = nullptr;

 private:
  void FindDriver() {
    for (ze_driver_handle_t driver : Drivers()) {
      void* address = nullptr;
      const xpud_back_end_t* back_end = nullptr;
      ASSERT_EQ(zeDriverGetExtensionFunctionAddress(driver, "xpudDriverGetBackEnd", &address),
                ZE_RESULT_SUCCESS);
      ASSERT_EQ(reinterpret_cast<xpud_pfnDriverGetBackEnd_t>(address)(driver, &back_end), ZE_RESULT_SUCCESS);
      if (std::strcmp(back_end->name, GetParam()) == 0) driver_ = driver;
    }
  }
};

inline std::string NameOf(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

// For suites that every back end must pass.
#define XPUD_ON_ALL_BACK_ENDS(suite) \
  INSTANTIATE_TEST_SUITE_P(On, suite, ::testing::Values("cpu", "cuda"), ::xpud::drivers::NameOf)

}  // namespace xpud::drivers
