// What a CUDA device answers of its PCI address, with CUDA's functions replaced: no GPU is needed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "drivers/cuda/device.h"
#include "drivers/cuda/driver.h"

namespace xpud::drivers::cuda {
namespace {

const char* bus_id = "";  // what CUDA answers
CUresult result = CUDA_SUCCESS;

class DevicePciTest : public ::testing::Test {
 protected:
  void SetUp() override {
    result = CUDA_SUCCESS;
    cu.cuDeviceGet = [](CUdevice* device, int ordinal) {
      *device = ordinal;
      return CUDA_SUCCESS;
    };
    cu.cuDeviceTotalMem = [](size_t* bytes, CUdevice) {
      *bytes = size_t{80} << 30;
      return CUDA_SUCCESS;
    };
    cu.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
      *value = 9;
      return CUDA_SUCCESS;
    };
    cu.cuDeviceGetPCIBusId = [](char* text, int size, CUdevice) {
      std::snprintf(text, static_cast<size_t>(size), "%s", bus_id);
      return result;
    };
    std::string reason;
    device_ = CudaDevice::Open(nullptr, 0, reason);
    ASSERT_NE(device_, nullptr) << reason;
  }

  ze_result_t Ask(const char* text) {
    bus_id = text;
    return device_->GetPciProperties(pci_);
  }

  std::unique_ptr<CudaDevice> device_;
  ze_pci_ext_properties_t pci_ = {};
};

TEST_F(DevicePciTest, CudasAddressIsAnswered) {
  // No machine has this device, so nothing is known of its link.
  ASSERT_EQ(Ask("FFFE:C7:1F.7"), ZE_RESULT_SUCCESS);
  EXPECT_EQ(pci_.address.domain, 0xfffeU);
  EXPECT_EQ(pci_.address.bus, 0xc7U);
  EXPECT_EQ(pci_.address.device, 0x1fU);
  EXPECT_EQ(pci_.address.function, 7U);
  EXPECT_EQ(pci_.maxSpeed.genVersion, -1);
  EXPECT_EQ(pci_.maxSpeed.width, -1);
  EXPECT_EQ(pci_.maxSpeed.maxBandwidth, -1);
}

TEST_F(DevicePciTest, AnswerThatIsNoAddressIsAnError) {
  EXPECT_EQ(Ask(""), ZE_RESULT_ERROR_UNKNOWN);
  EXPECT_EQ(Ask("a GPU"), ZE_RESULT_ERROR_UNKNOWN);
  // Longer than the space for it.
  EXPECT_EQ(Ask("0000000000000000000000000000000000000000:17:00.0"), ZE_RESULT_ERROR_UNKNOWN);
}

TEST_F(DevicePciTest, CudasErrorIsPassedOn) {
  result = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(Ask("0000:17:00.0"), ToZe(CUDA_ERROR_INVALID_VALUE));
}

}  // namespace
}  // namespace xpud::drivers::cuda
