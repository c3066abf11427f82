// Speed of host kernels on one thread, in bytes of operands moved a second, and the cost of planning.
#include "benchmark/benchmark.h"
#include "kernels/testing/device.h"
#include "kernels/testing/tensor.h"
#include "proto/base/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;

KernelLibrary& Library() {
  static KernelLibrary* const library = KernelLibrary::Create({})->release();
  return *library;
}

struct Case {
  std::vector<TestTensor> tensors;  // outputs, then inputs
  std::vector<Operand> outputs, inputs;
  std::vector<ops::Number> attributes;
  OpCall call;

  Case(const char* name, std::vector<TestTensor> made, size_t count, std::vector<Operand> immediates = {},
       std::vector<ops::Number> numbers = {})
      : tensors(std::move(made)), attributes(std::move(numbers)) {
    std::mt19937_64 random(1);
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (t >= count) Randomise(tensors[t], random);
      (t < count ? outputs : inputs).push_back(tensors[t].operand());
    }
    inputs.insert(inputs.end(), immediates.begin(), immediates.end());
    call = {.row = &ops::RowOf(name),
            .compute = tensors[count].dtype(),
            .outputs = outputs,
            .inputs = inputs,
            .attributes = attributes};
  }
};

void Run(benchmark::State& state, Case& c) {
  TestDevice device;
  LaunchList launches;
  XPUD_CHECK(device.Plan(Library(), c.call, launches).ok());
  device.Execute(launches);
  int64_t bytes = 0;
  for (const TestTensor& t : c.tensors) bytes += t.numel() * static_cast<int64_t>(ops::SizeOf(t.dtype()));
  for (auto _ : state) device.Execute(launches);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
}

constexpr int64_t kRows = 4096, kColumns = 1024;

TestTensor Matrix(DType type) { return TestTensor(type, {kRows, kColumns}); }

Operand One() {
  Operand one;
  one.immediate = true;
  one.number = ops::Number::Real(1);
  return one;
}

void Unary(benchmark::State& state, const char* name, DType type) {
  Case c(name, {Matrix(type), Matrix(type)}, 1);
  Run(state, c);
}
void Add(benchmark::State& state, DType type) {
  Case c("add.Tensor", {Matrix(type), Matrix(type), Matrix(type)}, 1, {One()});
  Run(state, c);
}
void Softmax(benchmark::State& state, DType type, int64_t dim) {
  Case c("_softmax", {Matrix(type), Matrix(type)}, 1, {}, {ops::Number::Integer(dim)});
  Run(state, c);
}
void LayerNorm(benchmark::State& state, DType type) {
  const TestTensor statistics(DType::kFloat32, {kRows}), weights(type, {kColumns});
  Case c("native_layer_norm", {Matrix(type), statistics, statistics, Matrix(type), weights, weights}, 3, {},
         {ops::Number::Real(1e-5)});
  Run(state, c);
}
void Sum(benchmark::State& state, DType type, int64_t dim) {
  Case c("sum",
         {TestTensor(type, dim == 0 ? std::vector<int64_t>{1, kColumns} : std::vector<int64_t>{kRows, 1}),
          Matrix(type)},
         1);
  Run(state, c);
}
// Reduces dimension `dim` of a matrix.
void Reduce(benchmark::State& state, const char* name, DType type, const std::vector<int64_t>& sizes,
            size_t dim) {
  const size_t outputs = ops::RowOf(name).outputs;
  std::vector<int64_t> kept = sizes;
  kept[dim] = 1;
  std::vector<TestTensor> tensors(outputs, TestTensor(type, kept));
  tensors.emplace_back(type, sizes);
  Case c(name, std::move(tensors), outputs, {}, {ops::Number::Real(1)});
  Run(state, c);
}
void Transpose(benchmark::State& state, DType type) {
  Case c("_copy_from", {Matrix(type), TestTensor(type, {kRows, kColumns}, {1, kRows})}, 1);
  Run(state, c);
}
void Plan(benchmark::State& state, const Case& c) {
  TestDevice device;
  LaunchList launches;
  XPUD_CHECK(device.Plan(Library(), c.call, launches).ok());
  const auto none = [](size_t) -> absl::StatusOr<void*> { return absl::ResourceExhaustedError(""); };
  for (auto _ : state) benchmark::DoNotOptimize(Library().Plan(c.call, none, launches));
}
TestTensor Small(const std::vector<int64_t>& sizes = {64, 64}) { return TestTensor(DType::kFloat32, sizes); }
void PlanAdd(benchmark::State& state) {
  Plan(state, Case("add.Tensor", {Small(), Small(), Small()}, 1, {One()}));
}
void PlanSoftmax(benchmark::State& state) {
  Plan(state, Case("_softmax", {Small(), Small()}, 1, {}, {ops::Number::Integer(1)}));
}
void PlanLayerNorm(benchmark::State& state) {
  Plan(state,
       Case("native_layer_norm", {Small(), Small({64}), Small({64}), Small(), Small({64}), Small({64})}, 3,
            {}, {ops::Number::Real(1e-5)}));
}
void PlanSum(benchmark::State& state) { Plan(state, Case("sum", {Small({64, 1}), Small()}, 1)); }
void PlanGather(benchmark::State& state) {
  Plan(state, Case("embedding", {Small({8, 64}), Small(), TestTensor(DType::kInt64, {8})}, 1));
}

BENCHMARK_CAPTURE(Add, f32, DType::kFloat32);
BENCHMARK_CAPTURE(Add, bf16, DType::kBFloat16);
BENCHMARK_CAPTURE(Unary, copy_f32, "_copy_from", DType::kFloat32);
BENCHMARK_CAPTURE(Unary, exp_f32, "exp", DType::kFloat32);
BENCHMARK_CAPTURE(Unary, exp_bf16, "exp", DType::kBFloat16);
BENCHMARK_CAPTURE(Unary, gelu_f32, "gelu", DType::kFloat32);
BENCHMARK_CAPTURE(Unary, gelu_bf16, "gelu", DType::kBFloat16);
BENCHMARK_CAPTURE(Unary, tanh_f32, "tanh", DType::kFloat32);
BENCHMARK_CAPTURE(Unary, sin_f32, "sin", DType::kFloat32);
BENCHMARK_CAPTURE(Softmax, rows_f32, DType::kFloat32, 1);
BENCHMARK_CAPTURE(Softmax, rows_bf16, DType::kBFloat16, 1);
BENCHMARK_CAPTURE(Softmax, columns_f32, DType::kFloat32, 0);
BENCHMARK_CAPTURE(LayerNorm, f32, DType::kFloat32);
BENCHMARK_CAPTURE(LayerNorm, bf16, DType::kBFloat16);
BENCHMARK_CAPTURE(Sum, rows_f32, DType::kFloat32, 1);
BENCHMARK_CAPTURE(Reduce, mean_of_short_rows, "mean.dim", DType::kFloat32, {65536, 64}, 1);
BENCHMARK_CAPTURE(Reduce, mean_of_rows_of_100, "mean.dim", DType::kFloat32, {40960, 100}, 1);
BENCHMARK_CAPTURE(Reduce, mean_of_columns, "mean.dim", DType::kFloat32, {kRows, kColumns}, 0);
BENCHMARK_CAPTURE(Reduce, mean_of_columns_bf16, "mean.dim", DType::kBFloat16, {kRows, kColumns}, 0);
BENCHMARK_CAPTURE(Reduce, mean_of_ten_columns, "mean.dim", DType::kFloat32, {400000, 10}, 0);
BENCHMARK_CAPTURE(Reduce, mean_of_few_rows, "mean.dim", DType::kFloat32, {32, 768}, 0);
BENCHMARK_CAPTURE(Reduce, norm_of_rows, "linalg_vector_norm", DType::kFloat32, {kRows, kColumns}, 1);
BENCHMARK_CAPTURE(Reduce, largest_of_rows, "amax", DType::kFloat32, {kRows, kColumns}, 1);
BENCHMARK_CAPTURE(Reduce, argmax_of_rows, "argmax", DType::kFloat32, {kRows, kColumns}, 1);
BENCHMARK_CAPTURE(Reduce, var_of_rows, "var.correction", DType::kFloat32, {kRows, kColumns}, 1);
BENCHMARK_CAPTURE(Reduce, var_of_short_rows, "var.correction", DType::kFloat32, {65536, 64}, 1);
BENCHMARK_CAPTURE(Reduce, var_of_columns, "var.correction", DType::kFloat32, {kRows, kColumns}, 0);
BENCHMARK_CAPTURE(Reduce, var_of_columns_bf16, "var.correction", DType::kBFloat16, {kRows, kColumns}, 0);
BENCHMARK_CAPTURE(Reduce, sum_of_small, "sum", DType::kFloat32, {1, 768}, 1);
BENCHMARK_CAPTURE(Sum, rows_bf16, DType::kBFloat16, 1);
BENCHMARK_CAPTURE(Sum, columns_f32, DType::kFloat32, 0);
BENCHMARK_CAPTURE(Sum, columns_bf16, DType::kBFloat16, 0);
BENCHMARK_CAPTURE(Transpose, f32, DType::kFloat32);
BENCHMARK(PlanAdd);
BENCHMARK(PlanSoftmax);
BENCHMARK(PlanLayerNorm);
BENCHMARK(PlanSum);
BENCHMARK(PlanGather);

}  // namespace
}  // namespace xpud::kernels

BENCHMARK_MAIN();
