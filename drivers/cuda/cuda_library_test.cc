#include "drivers/cuda/cuda_library.h"

#include <cstdlib>

#include "gmock/gmock.h"

namespace xpud::drivers::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the reason why the library was refused.
std::string Refusal(const char* name) {
  CudaFunctions functions{};
  std::string reason;
  EXPECT_EQ(LoadCuda(name, functions, reason), 0) << name;
  EXPECT_THAT(reason, Not(HasSubstr("\n")));
  return reason;
}

std::string RefusalOfFake(const char* kind) {
  setenv("XPUD_FAKE_CUDA", kind, 1);
  return Refusal(XPUD_FAKE_CUDA_LIBRARY);
}

TEST(CudaLibraryTest, AbsentLibraryIsNamed) {
  EXPECT_THAT(Refusal("/nowhere/libcuda.so.1"),
              AllOf(HasSubstr("/nowhere/libcuda.so.1"), HasSubstr("No such file")));
}

TEST(CudaLibraryTest, OldDriverIsToldWhatIsNeeded) {
  EXPECT_THAT(RefusalOfFake("old"), AllOf(HasSubstr("11.0"), HasSubstr("12.4"), HasSubstr("update")));
}

TEST(CudaLibraryTest, FailedInitialisationIsNamed) {
  EXPECT_THAT(RefusalOfFake("init"),
              AllOf(HasSubstr("cuInit failed"), HasSubstr("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")));
}

TEST(CudaLibraryTest, MachineWithoutGpuIsSaidToBeOne) {
  EXPECT_THAT(RefusalOfFake("none"), HasSubstr("found no GPU"));
}

TEST(CudaLibraryTest, LibraryThatLacksAFunctionIsRefused) {
  EXPECT_THAT(RefusalOfFake("incomplete"), HasSubstr("lacks cuDeviceGet"));
}

TEST(CudaLibraryTest, AnotherLibraryIsNotTakenForIt) {
  EXPECT_THAT(Refusal("libz.so.1"), HasSubstr("is not CUDA's driver library"));
}

TEST(CudaLibraryTest, EmptyNameSwitchesItOff) { EXPECT_THAT(Refusal(""), HasSubstr("switched off")); }

TEST(CudaLibraryTest, EnvironmentNamesTheLibrary) {
  unsetenv("XPUD_CUDA_LIBRARY");
  EXPECT_STREQ(CudaLibraryName(), "libcuda.so.1");
  setenv("XPUD_CUDA_LIBRARY", "/some/where.so", 1);
  EXPECT_STREQ(CudaLibraryName(), "/some/where.so");
  unsetenv("XPUD_CUDA_LIBRARY");
}

}  // namespace
}  // namespace xpud::drivers::cuda
