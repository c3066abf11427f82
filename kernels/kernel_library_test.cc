// What Plan does in the background, and what launches hold that run in another process. Nothing here runs.
#include "kernels/kernel_library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace xpud::kernels {
namespace {

Operand Matrix(uintptr_t address, int64_t rows, int64_t columns) {
  Operand operand;
  operand.data = reinterpret_cast<void*>(address);
  operand.rank = 2;
  operand.sizes = {rows, columns};
  operand.strides = {columns, 1};
  return operand;
}

// A product of 64x64 matrices at made-up addresses, planned and not run.
struct Product {
  explicit Product(const KernelLibrary::Options& options) : library(*KernelLibrary::Create(options)) {
    inputs[2].present = false;
    inputs[1].content = 7;
  }

  absl::StatusOr<Readiness> Plan() {
    workspace_bytes = 0;
    OpCall call;
    call.row = &ops::RowOf("addmm");
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    const auto workspace = [&](size_t bytes) -> absl::StatusOr<void*> {
      workspace_bytes += bytes;
      return reinterpret_cast<void*>(uintptr_t{0x900000});
    };
    return library->Plan(call, workspace, launches);
  }
  std::string Entry() const { return launches.size() == 0 ? "" : launches[0].kernel().entry; }

  const std::unique_ptr<KernelLibrary> library;
  const Operand outputs[1] = {Matrix(0x300000, 64, 64)};
  Operand inputs[3] = {Matrix(0x100000, 64, 64), Matrix(0x200000, 64, 64), {}};
  const ops::Number attributes[3] = {ops::Number::Real(1), ops::Number::Real(1), ops::Number::Integer(0)};
  LaunchList launches;
  size_t workspace_bytes = 0;
};

KernelLibrary::Options ForGpu(KernelLibrary::Ask ask) {
  KernelLibrary::Options options;
  options.target = Target::kNvptx;
  options.ask = std::move(ask);
  return options;
}

TEST(Ask, AnswersAreAskedOnceInTheBackgroundAndSetTheWorkspace) {
  std::atomic<int> asked = 0;
  std::atomic<bool> here = false;
  const auto caller = std::this_thread::get_id();
  Product product(ForGpu([&](const Launch& launch) -> absl::StatusOr<uint64_t> {
    here = std::this_thread::get_id() == caller;
    EXPECT_EQ(launch.kernel().entry, "cublaslt_prepare");
    EXPECT_EQ(launch.kernel().module->bytes, "cublaslt");
    ++asked;
    return 4096;
  }));
  ASSERT_EQ(*product.Plan(), Readiness::kCompiling);
  EXPECT_EQ(product.workspace_bytes, 0u);
  product.library->WaitForCompiles();
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(*product.Plan(), Readiness::kReady);
    EXPECT_EQ(product.Entry(), "cublaslt");
    EXPECT_EQ(product.workspace_bytes, 4096u);
    EXPECT_EQ(*static_cast<const uint64_t*>(product.launches[0].arguments()[2]), 4096u);
  }
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(here);
}

TEST(Ask, RefusedProductsAreOurOwn) {
  Product product(ForGpu([](const Launch&) { return absl::UnimplementedError("no algorithm"); }));
  for (int round = 0; round < 2; ++round) {  // the question, then our own module
    ASSERT_EQ(*product.Plan(), Readiness::kCompiling);
    product.library->WaitForCompiles();
  }
  ASSERT_EQ(*product.Plan(), Readiness::kReady);
  EXPECT_EQ(product.Entry(), "product_float32");
}

TEST(Ask, AProcessThatWasNotThereIsAskedAgain) {
  std::atomic<int> asked = 0;
  Product product(ForGpu([&](const Launch&) -> absl::StatusOr<uint64_t> {
    if (++asked == 1) return absl::UnavailableError("starting");
    return 0;
  }));
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(*product.Plan(), Readiness::kCompiling);
    product.library->WaitForCompiles();
  }
  ASSERT_EQ(*product.Plan(), Readiness::kReady);
  EXPECT_EQ(product.Entry(), "cublaslt");
  EXPECT_EQ(product.workspace_bytes, 0u);
}

TEST(Assemble, OurOwnPtxIsAssembledInTheBackgroundAndKeptOnDisk) {
  const std::string directory = ::testing::TempDir() + "xpud_library_" + std::to_string(::getpid());
  std::atomic<int> assembled = 0, ready = 0;
  KernelLibrary::Options options =
      ForGpu([](const Launch&) { return absl::UnimplementedError("no algorithm"); });
  options.cache_directory = directory;
  options.on_ready = [&] { ++ready; };
  options.assemble = [&](const std::string& ptx) -> absl::StatusOr<std::string> {
    EXPECT_NE(ptx.find(".entry product_float32"), std::string::npos);
    ++assembled;
    return "cubin";
  };
  for (const uint64_t from_disk : {0, 1}) {
    Product product(options);
    while (*product.Plan() == Readiness::kCompiling) product.library->WaitForCompiles();
    EXPECT_EQ(product.Entry(), "product_float32");
    EXPECT_EQ(product.launches[0].kernel().module->format, ModuleImage::Format::kNative);
    EXPECT_EQ(product.launches[0].kernel().module->bytes, "cubin");
    EXPECT_EQ(product.library->counters().disk_hits, from_disk);
    EXPECT_EQ(product.library->counters().compiled, 1 - from_disk);
  }
  EXPECT_EQ(assembled, 1);
  EXPECT_EQ(ready, 4);
  std::filesystem::remove_all(directory);
}

TEST(Assemble, AFailureIsTheOpsError) {
  KernelLibrary::Options options = ForGpu([](const Launch&) { return absl::UnimplementedError(""); });
  options.assemble = [](const std::string&) { return absl::InternalError("ptxas said no"); };
  Product product(options);
  absl::StatusOr<Readiness> readiness = product.Plan();
  for (; readiness.ok() && *readiness == Readiness::kCompiling; readiness = product.Plan())
    product.library->WaitForCompiles();
  EXPECT_EQ(readiness.status(), absl::InternalError("ptxas said no"));
}

TEST(Elsewhere, ProductsNameNoPlanAndNoPackedWeights) {
  for (const bool elsewhere : {false, true}) {
    KernelLibrary::Options options;
    options.elsewhere = elsewhere;
    Product product(options);
    for (int again = 0; again < 3; ++again) {
      ASSERT_EQ(*product.Plan(), Readiness::kReady);
      EXPECT_EQ(product.launches.size(), again == 1 && !elsewhere ? 2u : 1u) << "weights are packed then";
      const Launch& last = product.launches[product.launches.size() - 1];
      EXPECT_EQ(last.kernel().entry, elsewhere ? "matmul_unplanned" : "matmul");
      if (elsewhere) EXPECT_EQ(*static_cast<void* const*>(last.arguments()[2]), nullptr);
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
