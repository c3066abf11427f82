// Speed of loop kernels on one thread of the host, in bytes of operands moved a second.
#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "kernels/testing/device.h"
#include "kernels/testing/loop_call.h"
#include "proto/base/check.h"
#include "proto/loops/testing/chains.h"

namespace xpud::kernels {
namespace {

using loops::testing::Chain;
using ops::DType;

KernelLibrary& Library() {
  static KernelLibrary* const library = KernelLibrary::Create({})->release();
  return *library;
}

void Run(benchmark::State& state, const Chain& chain) {
  TestDevice device;
  std::mt19937_64 random(1);
  std::vector<TestTensor> tensors;
  int64_t bytes = 0;
  for (size_t i = 0; i < chain.elements.size(); ++i) {
    const DType type = chain.kernel.operands[i].type;
    tensors.emplace_back(type, std::vector<int64_t>{chain.elements[i]});
    Randomise(
        tensors.back(), random,
        type == DType::kInt64 ? RandomRange{0, static_cast<double>(chain.elements[i] - 1)} : RandomRange{});
    bytes += chain.elements[i] * static_cast<int64_t>(ops::SizeOf(type));
  }
  std::vector<TestTensor*> operands;
  for (TestTensor& tensor : tensors) operands.push_back(&tensor);
  LoopCall call(chain.kernel, {}, operands);
  XPUD_CHECK(call.refused().ok());
  LaunchList launches;
  XPUD_CHECK(device.Plan(Library(), call.call(), launches).ok());
  device.Execute(launches);
  for (auto _ : state) device.Execute(launches);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
}

}  // namespace
}  // namespace xpud::kernels

int main(int argc, char** argv) {
  using xpud::kernels::Run;
  struct {
    const char* name;
    int64_t rows, columns;
  } constexpr kSizes[] = {{"256KiB", 64, 1024}, {"16MiB", 4096, 1024}};
  for (const auto& size : kSizes) {
    for (const xpud::ops::DType type : {xpud::ops::DType::kFloat32, xpud::ops::DType::kBFloat16}) {
      for (const auto& chain : xpud::loops::testing::Chains(size.rows, size.columns, type).All()) {
        const std::string name = absl::StrCat(std::string(chain.name), "/", size.name, "/",
                                              std::string(xpud::ops::Info(type).name));
        benchmark::RegisterBenchmark(name.c_str(), [chain](benchmark::State& state) { Run(state, chain); });
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
