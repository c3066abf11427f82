// Times of kMatmul and kAttention on this machine, planned and run as on a device. Arguments of a matmul: m,
// k, n, workers, and whether the weights are known (packed). b is the transpose of a dense [n, k], as in
// torch's linear, with a bias row.
#include <benchmark/benchmark.h>

#include "kernels/library/testing/host_device.h"
#include "kernels/library/testing/host_tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using testing::HostDevice;
using testing::HostTensor;

struct MatmulSetup {
  HostTensor a, b, c, out;
  MatmulSetup(DType type, int64_t m, int64_t k, int64_t n, uint64_t content)
      : a(HostTensor::Dense(type, {m, k})),
        b(HostTensor::Laid(type, {k, n}, {1, 0}, 0)),
        c(HostTensor::Dense(type, {n})),
        out(HostTensor::Dense(type, {m, n})) {
    std::mt19937_64 random(1);
    for (HostTensor* t : {&a, &b, &c}) t->Fill(random);
    b.set_content(content);
  }
  absl::Status Plan(Planner& planner, HostDevice& device, LaunchList& launches, ops::Activation activation) {
    const Operand outputs[] = {out.operand()};
    const Operand inputs[] = {a.operand(), b.operand(), c.operand()};
    const ops::Number attributes[] = {ops::Number::Real(1), ops::Number::Real(1),
                                      ops::Number::Integer(static_cast<int64_t>(activation))};
    OpCall call;
    call.row = &ops::RowOf("addmm");
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    return device.Plan(planner, call, launches);
  }
};

void RunMatmul(benchmark::State& state, DType type, ops::Activation activation) {
  const int workers = static_cast<int>(state.range(3));
  HostDevice device(workers);
  const std::unique_ptr<Planner> planner = CreateOnednnMatmul(device, workers);
  MatmulSetup setup(type, state.range(0), state.range(1), state.range(2), state.range(4));
  LaunchList launches;
  for (int i = 0; i < 3; ++i) {
    XPUD_CHECK(setup.Plan(*planner, device, launches, activation).ok());
    device.Run(launches);
  }
  for (auto _ : state) {
    XPUD_CHECK(setup.Plan(*planner, device, launches, activation).ok());
    device.Run(launches);
  }
  state.counters["GFlops"] = benchmark::Counter(2e-9 * state.range(0) * state.range(1) * state.range(2),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void MatmulShapes(benchmark::internal::Benchmark* b) {
  const int64_t shapes[][3] = {{4096, 384, 384}, {4096, 384, 1152}, {4096, 384, 1536}, {4096, 1536, 384},
                               {128, 384, 384},  {16, 384, 384},    {16, 384, 1152},   {16, 384, 1536},
                               {16, 1536, 384},  {1, 384, 1536},    {2, 384, 1536},    {4, 384, 1536},
                               {8, 384, 1536},   {1, 4096, 4096}};
  for (const auto& [m, k, n] : shapes)
    for (const int64_t workers : {1, 2})
      for (const int64_t content : {0, 1}) b->Args({m, k, n, workers, content});
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(RunMatmul, float32, DType::kFloat32, ops::Activation::kNone)->Apply(MatmulShapes);
BENCHMARK_CAPTURE(RunMatmul, float32_gelu, DType::kFloat32, ops::Activation::kGelu)->Apply(MatmulShapes);
BENCHMARK_CAPTURE(RunMatmul, bfloat16, DType::kBFloat16, ops::Activation::kNone)->Apply(MatmulShapes);
BENCHMARK_CAPTURE(RunMatmul, float16, DType::kFloat16, ops::Activation::kNone)
    ->Args({128, 384, 384, 1, 0})
    ->Args({128, 384, 384, 1, 1})
    ->Args({1, 384, 1536, 1, 0});
BENCHMARK_CAPTURE(RunMatmul, float64, DType::kFloat64, ops::Activation::kNone)
    ->Args({512, 512, 512, 1, 0})
    ->Args({512, 512, 512, 2, 0});

void PlanMatmul(benchmark::State& state) {
  HostDevice device(1);
  const std::unique_ptr<Planner> planner = CreateOnednnMatmul(device, 1);
  MatmulSetup setup(DType::kFloat32, 16, 384, 384, state.range(0));
  LaunchList launches;
  for (auto _ : state) XPUD_CHECK(setup.Plan(*planner, device, launches, ops::Activation::kNone).ok());
}
BENCHMARK(PlanMatmul)->Arg(0)->Arg(1);

enum MaskKind { kNoMask, kBoolPerKey, kAdditive, kCausal };

// Arguments: batch, heads, queries, keys, depth, mask kind, workers. Heads are interleaved as [B, S, H, D],
// as in models.
void RunAttention(benchmark::State& state, DType type) {
  const int64_t batch = state.range(0), heads = state.range(1), queries = state.range(2),
                keys = state.range(3), depth = state.range(4), kind = state.range(5);
  const int workers = static_cast<int>(state.range(6));
  HostDevice device(workers);
  const std::unique_ptr<Planner> planner = CreateHostAttention(device, workers);
  const std::vector<int> order = {0, 2, 1, 3};
  HostTensor q = HostTensor::Laid(type, {batch, heads, queries, depth}, order, 0), out = q;
  HostTensor k = HostTensor::Laid(type, {batch, heads, keys, depth}, order, 0), v = k, mask;
  std::mt19937_64 random(1);
  for (HostTensor* t : {&q, &k, &v}) t->Fill(random);
  if (kind == kBoolPerKey) mask = HostTensor(DType::kBool, {batch, heads, queries, keys}, {keys, 0, 0, 1});
  if (kind == kAdditive) mask = HostTensor(type, {batch, heads, queries, keys}, {queries * keys, 0, keys, 1});
  if (mask.present()) mask.Fill(random);
  const Operand outputs[] = {out.operand()};
  const Operand inputs[] = {q.operand(), k.operand(), v.operand(), mask.operand()};
  const ops::Number attributes[] = {ops::Number::Real(1 / std::sqrt(static_cast<double>(depth))),
                                    ops::Number::Integer(kind == kCausal)};
  OpCall call;
  call.row = &ops::RowOf("_scaled_dot_product_fused_attention_overrideable");
  call.outputs = outputs;
  call.inputs = inputs;
  call.attributes = attributes;
  LaunchList launches;
  for (auto _ : state) {
    launches.Clear();
    XPUD_CHECK(planner->Plan(call, [&](size_t bytes) { return device.Workspace(bytes); }, launches).ok());
    device.Run(launches);
  }
  state.counters["GFlops"] = benchmark::Counter(4e-9 * batch * heads * queries * keys * depth,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

// Arguments: batch, heads, queries and keys, depth, dropout in percent, workers.
void RunAttentionBackward(benchmark::State& state, DType type) {
  const int64_t batch = state.range(0), heads = state.range(1), length = state.range(2),
                depth = state.range(3);
  const int workers = static_cast<int>(state.range(5));
  HostDevice device(workers);
  const std::unique_ptr<Planner> planner = CreateHostAttention(device, workers);
  HostTensor q = HostTensor::Laid(type, {batch, heads, length, depth}, {0, 2, 1, 3}, 0);
  std::mt19937_64 random(1);
  q.Fill(random);
  HostTensor k = q, v = q, out = q, gradient = q, dq = q, dk = q, dv = q, mask;
  HostTensor logsumexp = HostTensor::Dense(DType::kFloat32, {batch, heads, length});
  logsumexp.ForEach([&](const auto& index) { logsumexp.Set(index, std::log(static_cast<double>(length))); });
  const Operand outputs[] = {dq.operand(), dk.operand(), dv.operand()};
  const Operand inputs[] = {gradient.operand(), q.operand(),         k.operand(),   v.operand(),
                            out.operand(),      logsumexp.operand(), mask.operand()};
  const ops::Number attributes[] = {ops::Number::Real(1 / std::sqrt(static_cast<double>(depth))),
                                    ops::Number::Integer(0),
                                    ops::Number::Real(static_cast<double>(state.range(4)) / 100),
                                    ops::Number::Integer(1), ops::Number::Integer(0)};
  OpCall call;
  call.row = &ops::RowOf("xpud::attention_backward");
  call.outputs = outputs;
  call.inputs = inputs;
  call.attributes = attributes;
  LaunchList launches;
  for (auto _ : state) {
    launches.Clear();
    XPUD_CHECK(planner->Plan(call, [&](size_t bytes) { return device.Workspace(bytes); }, launches).ok());
    device.Run(launches);
  }
  state.counters["GFlops"] = benchmark::Counter(10e-9 * batch * heads * length * length * depth,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void AttentionBackwardShapes(benchmark::internal::Benchmark* b) {
  for (const int64_t workers : {1, 2})
    for (const int64_t percent : {0, 10}) {
      b->Args({4, 12, 128, 64, percent, workers});
      b->Args({1, 16, 1024, 64, percent, workers});
      b->Args({2, 8, 512, 128, percent, workers});
      b->Args({1, 8, 1500, 64, percent, workers});
    }
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(RunAttentionBackward, float32, DType::kFloat32)->Apply(AttentionBackwardShapes);
BENCHMARK_CAPTURE(RunAttentionBackward, bfloat16, DType::kBFloat16)->Apply(AttentionBackwardShapes);

void AttentionShapes(benchmark::internal::Benchmark* b) {
  for (const int64_t workers : {1, 2}) {
    for (const int64_t kind : {kNoMask, kBoolPerKey, kAdditive, kCausal})
      b->Args({32, 12, 128, 128, 32, kind, workers});
    b->Args({1, 12, 16, 16, 32, kBoolPerKey, workers});
    b->Args({1, 12, 1, 512, 64, kNoMask, workers});
    b->Args({4, 12, 128, 128, 64, kNoMask, workers});
    b->Args({1, 8, 1500, 1500, 64, kNoMask, workers});
    b->Args({1, 12, 1024, 1024, 64, kCausal, workers});
  }
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(RunAttention, float32, DType::kFloat32)->Apply(AttentionShapes);
BENCHMARK_CAPTURE(RunAttention, bfloat16, DType::kBFloat16)->Apply(AttentionShapes);

}  // namespace
}  // namespace xpud::kernels

BENCHMARK_MAIN();
