#include "drivers/cuda/result.h"

#include "gtest/gtest.h"

namespace xpud::drivers::cuda {
namespace {

TEST(ResultTest, ErrorsThatEndTheContextAreALostDevice) {
  for (const int sticky :
       {46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 810})
    EXPECT_EQ(ToZe(static_cast<CUresult>(sticky)), ZE_RESULT_ERROR_DEVICE_LOST) << sticky;
}

TEST(ResultTest, ErrorsOfOneCallAreNot) {
  for (const int error :
       {1, 2, 3, 100, 200, 201, 209, 218, 400, 500, 600, 701, 712, 713, 720, 800, 801, 999}) {
    EXPECT_FALSE(IsSticky(static_cast<CUresult>(error))) << error;
    EXPECT_NE(ToZe(static_cast<CUresult>(error)), ZE_RESULT_SUCCESS) << error;
  }
  EXPECT_EQ(ToZe(CUDA_SUCCESS), ZE_RESULT_SUCCESS);
  EXPECT_EQ(ToZe(CUDA_ERROR_NOT_READY), ZE_RESULT_NOT_READY);
  EXPECT_EQ(ToZe(CUDA_ERROR_OUT_OF_MEMORY), ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
}

}  // namespace
}  // namespace xpud::drivers::cuda
