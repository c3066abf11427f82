// Loop kernels as PTX, accepted by ptxas, and as SPIR-V, accepted by spirv-val, if they are installed.
// loop_test runs them on a GPU.
#include "gtest/gtest.h"
#include "kernels/dispatch/kernel_library.h"
#include "kernels/testing/code_check.h"
#include "kernels/testing/loop_call.h"
#include "proto/loops/testing/chains.h"
#include "proto/loops/testing/random_computation.h"
#include "proto/loops/text.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class LoopGpuEmissionTest : public ::testing::TestWithParam<Target> {
 protected:
  LoopGpuEmissionTest() {
    KernelLibrary::Options options;
    options.target = GetParam();
    library_ = *KernelLibrary::Create(options);
  }

  // Plans the call; what it launches is never run.
  void Check(const loops::Kernel& kernel, const std::vector<int64_t>& sizes,
             const std::vector<int64_t>& elements) {
    SCOPED_TRACE(loops::TextOf(kernel));
    std::vector<TestTensor> tensors;
    for (size_t i = 0; i < elements.size(); ++i)
      tensors.emplace_back(kernel.operands[i].type, std::vector<int64_t>{elements[i]});
    std::vector<TestTensor*> operands;
    for (TestTensor& tensor : tensors) operands.push_back(&tensor);
    const LoopCall call(kernel, sizes, operands);
    ASSERT_TRUE(call.refused().ok()) << call.refused();
    Plan(call.call());
  }

  void Plan(const OpCall& call) {
    const auto workspace = [](size_t) -> absl::StatusOr<void*> { return nullptr; };
    LaunchList launches;
    absl::StatusOr<Readiness> readiness = Readiness::kCompiling;
    while (readiness.ok() && *readiness == Readiness::kCompiling) {
      readiness = library_->Plan(call, workspace, launches);
      library_->WaitForCompiles();
    }
    ASSERT_TRUE(readiness.ok()) << readiness.status();
    ASSERT_GT(launches.size(), 0u);
    code_.clear();
    const char* const tool = GetParam() == Target::kNvptx ? kPtxAssembler : kSpirvValidator;
    for (size_t i = 0; i < launches.size(); ++i) {
      const auto& bytes = launches[i].kernel().module->bytes;
      ASSERT_TRUE(IsAccepted(tool, bytes));
      code_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }

  std::string code_;  // of the last plan
  std::unique_ptr<KernelLibrary> library_;
};

TEST_P(LoopGpuEmissionTest, Chains) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t columns : {8, 300, 768, 2000})
      for (const loops::testing::Chain& chain : loops::testing::Chains(70, columns, type).All())
        Check(chain.kernel, {}, chain.elements);
  }
}

TEST_P(LoopGpuEmissionTest, RandomComputations) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    loops::testing::RandomComputation random(seed);
    const loops::Kernel kernel = random.Next();
    std::vector<int64_t> elements;
    for (const loops::Operand& operand : kernel.operands)
      elements.push_back(operand.role == loops::Role::kScalar ? 1 : random.elements());
    Check(kernel, random.sizes(), elements);
  }
}

TEST_P(LoopGpuEmissionTest, SumsInMemory) {
  for (const DType type : {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kInt64})
    Check(loops::testing::ScatteredSums(100, 10, type), {}, {100, 100, 10});
}

TEST_P(LoopGpuEmissionTest, TilesAreTurnedInSharedMemory) {
  const loops::Kernel kernel = loops::testing::TransposedProducts(DType::kBFloat16);
  for (const int64_t rows : {512, 16}) {  // too little for tiles
    Check(kernel, {2, rows, 512}, {2 * 512 * rows, 512 * rows, 2 * 512 * rows});
    if (GetParam() == Target::kNvptx) EXPECT_EQ(code_.find("ld.shared") != std::string::npos, rows == 512);
  }
}

TEST_P(LoopGpuEmissionTest, LanesTakeBlocksWhereAddressesAreAligned) {
  if (GetParam() != Target::kNvptx) GTEST_SKIP() << "SPIR-V is no text";
  constexpr int64_t kRows = 64, kColumns = 2048;
  const auto accesses = [&](const std::string& access) {
    size_t count = 0;
    for (size_t at = 0; (at = code_.find(access, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  const loops::testing::Chains chains(kRows, kColumns, DType::kFloat32);
  for (const auto& [chain, loads, stores] :
       {std::tuple{chains.GeluOfProduct(), 4u, 1u}, {chains.ResidualLayerNorm(), 8u, 4u}}) {
    std::vector<TestTensor> tensors;
    for (const int64_t elements : chain.elements)
      tensors.emplace_back(DType::kFloat32, std::vector{elements});
    std::vector<TestTensor*> operands;
    for (TestTensor& tensor : tensors) operands.push_back(&tensor);
    const LoopCall call(chain.kernel, {}, operands);
    Plan(call.call());
    EXPECT_EQ(accesses("ld.global.v4"), loads) << chain.name;
    EXPECT_EQ(accesses("st.global.v4"), stores) << chain.name;
    OpCall moved = call.call();
    std::vector<Operand> inputs(moved.inputs.begin(), moved.inputs.end());
    inputs[0].data = static_cast<float*>(inputs[0].data) + 1;
    moved.inputs = inputs;
    Plan(moved);
    EXPECT_EQ(accesses(".v4"), 0u) << chain.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LoopGpuEmissionTest, ::testing::Values(Target::kNvptx, Target::kSpirv),
                         [](const auto& info) { return info.param == Target::kNvptx ? "Nvptx" : "Spirv"; });

}  // namespace
}  // namespace xpud::kernels
