// Machine code is assembled in the compile thread and kept on disk, so that a warm start compiles and
// assembles nothing.
#include <filesystem>

#include "gtest/gtest.h"
#include "kernels/dispatch/kernel_library.h"
#include "kernels/testing/cuda_device.h"
#include "kernels/testing/gpu_memory.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

TEST(CudaDeviceTest, AssembledKernelsAreKeptOnDisk) {
  const absl::StatusOr<CudaDevice*> device = CudaDevice::Get();
  if (!device.ok()) GTEST_SKIP() << device.status();
  const std::string directory = ::testing::TempDir() + "xpud_cubins_" + std::to_string(::getpid());
  KernelLibrary::Options options;
  options.target = Target::kNvptx;
  options.processor = (*device)->processor();
  options.cache_directory = directory;
  int assembled = 0;
  options.assemble = [&](const std::string& ptx) {
    ++assembled;
    return (*device)->Assemble(ptx);
  };
  for (const uint64_t from_disk : {0, 1}) {
    const auto library = *KernelLibrary::Create(options);
    TestTensor a(ops::DType::kFloat32, {1000}), out(ops::DType::kFloat32, {1000});
    for (int64_t i = 0; i < 1000; ++i) a.Set(i, i);
    const Operand input = a.operand(), output = out.operand();
    GpuMemory memory(**device, {.row = &ops::RowOf("neg"),
                                .compute = ops::DType::kFloat32,
                                .outputs = {&output, 1},
                                .inputs = {&input, 1},
                                .attributes = {}});
    LaunchList launches;
    const auto none = [](size_t) -> absl::StatusOr<void*> { return absl::ResourceExhaustedError(""); };
    ASSERT_EQ(*library->Plan(memory.call(), none, launches), Readiness::kCompiling);
    library->WaitForCompiles();
    ASSERT_EQ(*library->Plan(memory.call(), none, launches), Readiness::kReady);
    EXPECT_EQ(launches[0].kernel().module->format, ModuleImage::Format::kNative);
    EXPECT_EQ(launches[0].kernel().module->bytes.substr(1, 3), "ELF");
    (*device)->Launch(launches);
    (*device)->Synchronize();
    memory.CopyBack();
    EXPECT_EQ(out.At(42), -42);
    EXPECT_EQ(library->counters().disk_hits, from_disk);
  }
  EXPECT_EQ(assembled, 1);
  std::filesystem::remove_all(directory);
}

TEST(CudaDeviceTest, WrongPtxIsRefusedWithTheReason) {
  const absl::StatusOr<CudaDevice*> device = CudaDevice::Get();
  if (!device.ok()) GTEST_SKIP() << device.status();
  const absl::StatusOr<std::string> cubin = (*device)->Assemble(".version 7.8\n.target sm_80\nnonsense");
  EXPECT_FALSE(cubin.ok());
  EXPECT_NE(std::string(cubin.status().message()).find("ptxas"), std::string::npos) << cubin.status();
}

}  // namespace
}  // namespace xpud::kernels
