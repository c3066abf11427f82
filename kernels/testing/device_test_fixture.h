// Base of the tests of op families: a device and its library. XPUD_TEST_TARGET=nvptx runs them on a GPU, and
// skips them, with the reason, where there is none. There, XPUD_TEST_LIBRARIES=0 tests our own kernels where
// NVIDIA's libraries would serve.
#pragma once

#include <memory>

#include "gtest/gtest.h"
#include "kernels/testing/device.h"

namespace xpud::kernels {

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() : library_(*KernelLibrary::Create(device_.options())) {}

  void SetUp() override {
    if (!device_.absent().ok()) GTEST_SKIP() << device_.absent();
  }

  TestDevice device_;
  std::unique_ptr<KernelLibrary> library_;
};

}  // namespace xpud::kernels
