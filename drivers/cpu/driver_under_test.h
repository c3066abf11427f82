// Tests only: Debian's loader with our library as its one driver, and the handles that most tests start from.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers::cpu {

// The loader reads the variable at the first zeInit of the process.
inline ze_result_t InitWithOurDriver() {
  setenv("ZE_ENABLE_ALT_DRIVERS", XPUD_DRIVER_PATH, 1);
  return zeInit(0);
}

class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(InitWithOurDriver(), ZE_RESULT_SUCCESS);
    uint32_t count = 1;
    ASSERT_EQ(zeDriverGet(&count, &driver_), ZE_RESULT_SUCCESS);
    count = 1;
    ASSERT_EQ(zeDeviceGet(driver_, &count, &device_), ZE_RESULT_SUCCESS);
    const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    ASSERT_EQ(zeContextCreate(driver_, &desc, &context_), ZE_RESULT_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(zeContextDestroy(context_), ZE_RESULT_SUCCESS); }

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

  ze_driver_handle_t driver_ = nullptr;
  ze_device_handle_t device_ = nullptr;
  ze_context_handle_t context_ = nullptr;
};

}  // namespace xpud::drivers::cpu
