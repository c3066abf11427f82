// What Plan does in the background, and what launches hold that run in another process. Nothing here runs.
#include "kernels/dispatch/kernel_library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <span>
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

KernelLibrary::Options ForGpu(HostKernelRunner run) {
  KernelLibrary::Options options;
  options.target = Target::kNvptx;
  options.run_host_kernel = std::move(run);
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
  ASSERT_EQ(*product.Plan(), Readiness::kCompiling);  // the question; our own module is ready as it is
  product.library->WaitForCompiles();
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

// Kernels of maps, planned and not run, of a library that keeps sixteen. Those that work needs are not
// forgotten.
class KernelLimit : public ::testing::Test {
 protected:
  static constexpr size_t kMax = 16;

  KernelLimit() {
    KernelLibrary::Options options;
    options.most_kernels = kMax;
    options.forget = [this](std::vector<const Kernel*>& kernels) {
      std::erase_if(kernels, [&](const Kernel* kernel) {
        if (needed_.contains(kernel)) return false;
        EXPECT_TRUE(loaded_.erase(kernel)) << kernel->entry << " was forgotten before";
        return true;
      });
    };
    library_ = *KernelLibrary::Create(options);
  }

  // As its launch names it; loaded from then on.
  const Kernel* KernelOf(const char* op, ops::DType dtype) {
    Operand operands[2] = {Matrix(0x100000, 8, 8), Matrix(0x200000, 8, 8)};
    operands[0].dtype = operands[1].dtype = dtype;
    OpCall call;
    call.row = &ops::RowOf(op);
    call.compute = dtype;
    call.outputs = std::span(operands).first(1);
    call.inputs = std::span(operands).last(1);
    const auto workspace = [](size_t) -> absl::StatusOr<void*> { return absl::InternalError("not needed"); };
    while (*library_->Plan(call, workspace, launches_) == Readiness::kCompiling) library_->WaitForCompiles();
    const Kernel* const kernel = &launches_[0].kernel();
    loaded_.insert(kernel);
    return kernel;
  }
  // Four times as many as are kept.
  void UseMany() {
    for (const char* op : {"neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh", "floor", "ceil", "erf",
                           "rsqrt", "relu", "sigmoid", "reciprocal", "log2"}) {
      for (const ops::DType dtype :
           {ops::DType::kFloat32, ops::DType::kFloat64, ops::DType::kFloat16, ops::DType::kBFloat16}) {
        KernelOf(op, dtype);
        highest_ = std::max(highest_, launches_[0].kernel().index);
        if (always_ != nullptr) KernelOf(always_, ops::DType::kFloat32);
      }
    }
  }

  std::set<const Kernel*> loaded_, needed_;
  LaunchList launches_;
  const char* always_ = nullptr;  // used in between
  uint32_t highest_ = 0;
  std::unique_ptr<KernelLibrary> library_;
};

TEST_F(KernelLimit, IsKeptAndIndicesAreUsedAgain) {
  UseMany();
  EXPECT_EQ(library_->counters().compiled, 64u);
  EXPECT_LE(loaded_.size(), kMax);
  EXPECT_GE(loaded_.size(), kMax - kMax / 8) << "more were forgotten than had to be";
  EXPECT_LE(highest_, kMax + 14) << "with those of vendors' libraries";
  const uint64_t before = library_->counters().compiled;
  EXPECT_EQ(KernelOf("neg", ops::DType::kFloat32)->entry, KernelOf("neg", ops::DType::kFloat32)->entry);
  EXPECT_EQ(library_->counters().compiled, before + 1) << "it was forgotten, and is made again";
}

TEST_F(KernelLimit, WhatIsUsedAgainAndAgainStays) {
  always_ = "lgamma";
  const Kernel* const kernel = KernelOf(always_, ops::DType::kFloat32);
  UseMany();
  EXPECT_EQ(KernelOf(always_, ops::DType::kFloat32), kernel);
  EXPECT_EQ(library_->counters().compiled, 65u);
}

TEST_F(KernelLimit, WhatWorkNeedsStaysUntilItIsDone) {
  const Kernel* const kernel = KernelOf("neg", ops::DType::kFloat32);
  needed_.insert(kernel);
  const std::string entry = kernel->entry, code = kernel->module->bytes;
  const uint32_t index = kernel->index;
  UseMany();
  UseMany();
  EXPECT_TRUE(loaded_.contains(kernel));
  EXPECT_EQ(kernel->index, index);
  EXPECT_EQ(kernel->entry, entry);
  EXPECT_EQ(kernel->module->bytes, code);
  for (const Kernel* other : loaded_) EXPECT_TRUE(other == kernel || other->index != index);
  needed_.clear();
  UseMany();
  // Another kernel may have its address.
  EXPECT_TRUE(std::ranges::none_of(loaded_, [&](const Kernel* each) { return each->entry == entry; }));
  EXPECT_LE(loaded_.size(), kMax);
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
