// kAttention on all devices that support it.
#include <gtest/gtest.h>

#include <utility>

#include "kernels/library/simd/simd.h"
#include "kernels/library/testing/attention_machine.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using testing::HostTensor;
using testing::On;
using testing::RandomLayout;
using testing::RandomMask;
using Machine = testing::AttentionMachine;
using Random = std::mt19937_64;
using Index = std::array<int64_t, ops::kMaxRank>;

class Call {
 public:
  HostTensor q, k, v, mask, out, logsumexp;
  double scale = 1;
  bool causal = false;
  bool rounds_weights = false;

  void Run(int workers) {
    Machine machine(workers);
    Run(machine);
  }
  void Run(Machine& machine) {
    testing::Device& device = *machine.device;
    rounds_weights = testing::RoundsWeights(machine.on_gpu, q.shape().dtype);
    const Operand outputs[] = {device.Place(out), device.Place(logsumexp)};
    const Operand inputs[] = {device.Place(q), device.Place(k), device.Place(v), device.Place(mask)};
    const ops::Number attributes[] = {ops::Number::Real(scale), ops::Number::Integer(causal)};
    OpCall call;
    call.row = &ops::RowOf("_scaled_dot_product_fused_attention_overrideable");
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    LaunchList launches;
    const absl::Status planned = device.Plan(*machine.planner, call, launches);
    ASSERT_TRUE(planned.ok()) << planned;
    device.Run(launches);
  }

  // Compares with softmax(scale q k^T + mask) v in double precision. A row that may attend to nothing gives
  // 0, as in PyTorch.
  void Expect() const {
    const auto& size = q.shape().sizes;
    const int64_t keys = k.shape().sizes[2], depth = size[3], value_depth = v.shape().sizes[3];
    const int64_t share = size[1] / k.shape().sizes[1];
    const std::vector<double> queries = Values(q), all_keys = Values(k), values = Values(v);
    int wrong = 0;
    for (int64_t b = 0; b < size[0]; ++b)
      for (int64_t h = 0; h < size[1]; ++h) {
        const int64_t key_head = b * k.shape().sizes[1] + h / share;
        for (int64_t s = 0; s < size[2]; ++s) {
          const double* const query = queries.data() + ((b * size[1] + h) * size[2] + s) * depth;
          std::vector<double> score(keys), expected(value_depth), magnitude(value_depth);
          double top = -INFINITY, sum = 0;
          for (int64_t t = 0; t < keys; ++t) {
            const double* const key = all_keys.data() + (key_head * keys + t) * depth;
            double dot = 0;
            for (int64_t d = 0; d < depth; ++d) dot += query[d] * key[d];
            score[t] = MaskedScore(dot * scale, Index{b, h, s, t});
            top = std::max(top, score[t]);
          }
          for (int64_t t = 0; t < keys; ++t) {
            const double weight = top == -INFINITY ? 0 : std::exp(score[t] - top);
            const double* const value = values.data() + (key_head * keys + t) * value_depth;
            sum += weight;
            for (int64_t e = 0; e < value_depth; ++e) {
              expected[e] += weight * value[e];
              magnitude[e] += std::abs(weight * value[e]);
            }
          }
          const double inverse = sum == 0 ? 0 : 1 / sum;
          for (int64_t e = 0; e < value_depth; ++e)
            ExpectNear(out.At(Index{b, h, s, e}), expected[e] * inverse, magnitude[e] * inverse,
                       Index{b, h, s, e}, wrong);
          if (!logsumexp.present()) continue;
          const double got = logsumexp.At(Index{b, h, s}), wanted = sum == 0 ? 0 : top + std::log(sum);
          if (!(got == wanted || std::abs(got - wanted) <= 1e-5 * (1 + std::abs(wanted))) && ++wrong <= 3)
            ADD_FAILURE() << "logsumexp " << b << "," << h << "," << s << ": " << got << ", expected "
                          << wanted;
        }
      }
    EXPECT_EQ(wrong, 0);
  }

 private:
  // Row-major without gaps.
  static std::vector<double> Values(const HostTensor& tensor) {
    std::vector<double> values;
    values.reserve(tensor.shape().numel());
    tensor.ForEach([&](const auto& index) { values.push_back(tensor.At(index)); });
    return values;
  }
  double MaskedScore(double score, const Index& index) const {
    if (causal && index[3] > index[2]) return -INFINITY;
    if (!mask.present()) return score;
    const double m = mask.At(index);
    return mask.shape().dtype != DType::kBool ? score + m : m != 0 ? score : -INFINITY;
  }
  void ExpectNear(double got, double expected, double magnitude, const Index& index, int& wrong) const {
    const double epsilon = testing::Epsilon(q.shape().dtype);
    const double accumulate = q.shape().dtype == DType::kFloat64 ? 1e-15 : 1e-6;
    const double tolerance = epsilon * std::abs(expected) + 8 * accumulate * (magnitude + 0.1) +
                             (rounds_weights ? epsilon / 2 * magnitude : 0);
    if (!(std::abs(got - expected) <= tolerance) && ++wrong <= 3)
      ADD_FAILURE() << index[0] << "," << index[1] << "," << index[2] << "," << index[3] << ": " << got
                    << ", expected " << expected;
  }
};

Call RandomCall(Random& random, DType type) {
  const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 33, 64, 65, 128, 150, 300},
                depths[] = {1, 3, 8, 16, 20, 32, 64, 80};
  const int64_t batch = 1 + random() % 3, key_heads = 1 + random() % 3,
                heads = key_heads * (1 + random() % 3);
  const int64_t queries = sizes[random() % (random() % 3 ? 12 : 3)],
                keys = random() % 30 == 0 ? 0 : sizes[random() % 12];
  const int64_t depth = depths[random() % 8], value_depth = random() % 2 ? depth : depths[random() % 8];
  Call call;
  call.q = RandomLayout(random, type, {batch, heads, queries, depth});
  call.k = RandomLayout(random, type, {batch, key_heads, keys, depth});
  call.v = RandomLayout(random, type, {batch, key_heads, keys, value_depth});
  call.out = RandomLayout(random, type, {batch, heads, queries, value_depth});
  for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
  if (random() % 2 && keys > 0) call.mask = RandomMask(random, type, {batch, heads, queries, keys});
  if (random() % 2) call.logsumexp = HostTensor::Dense(DType::kFloat32, {batch, heads, queries});
  call.scale = random() % 2 ? 1 / std::sqrt(static_cast<double>(depth)) : 0.3;
  call.causal = random() % 3 == 0;
  return call;
}

class AttentionOfType : public ::testing::TestWithParam<std::tuple<On, DType>> {
 protected:
  void SetUp() override {
    const On on = std::get<0>(GetParam());
    if (on == On::kHost || on == On::kHostInPairs) {
      if (on == On::kHostInPairs) simd::UseInTests(&testing::EmulatedPairs());
      machine_ = &host_;
      return;
    }
    const absl::StatusOr<Machine*> gpu = Machine::Gpu(on == On::kGpuAsOlder);
    if (!gpu.ok()) GTEST_SKIP() << gpu.status();
    machine_ = *gpu;
    if (on == On::kGpuAsOlder && ops::SizeOf(type()) != 2)
      GTEST_SKIP() << "wider types have the same kernels everywhere";
  }
  void TearDown() override { simd::UseInTests(nullptr); }
  DType type() const { return std::get<1>(GetParam()); }

  Machine host_{2};
  Machine* machine_ = nullptr;
};

class HostAttentionOfType : public ::testing::TestWithParam<DType> {};

TEST_P(AttentionOfType, EveryLayoutMaskAndSizeAgreesWithTheDefinition) {
  Random random(static_cast<int>(type()) + 100);
  for (int round = 0; round < 120; ++round) {
    Call call = RandomCall(random, type());
    const auto& size = call.q.shape().sizes;
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << " S " << size[2] << " T " << call.k.shape().sizes[2] << " D "
                 << size[3] << " E " << call.v.shape().sizes[3] << " causal " << call.causal << " mask "
                 << call.mask.present());
    HostTensor untouched = call.out;
    call.Run(*machine_);
    call.Expect();
    if (HasFailure()) return;
    call.out.ForEach([&](const auto& index) { untouched.Set(index, call.out.At(index)); });
    EXPECT_EQ(untouched.bytes(), call.out.bytes());
  }
}

TEST_P(AttentionOfType, RowWithoutKeysGivesZero) {
  Random random(5);
  Call call;
  call.q = HostTensor::Dense(type(), {1, 2, 20, 32});
  call.k = call.v = HostTensor::Dense(type(), {1, 2, 40, 32});
  call.out = HostTensor::Dense(type(), {1, 2, 20, 32});
  call.mask = HostTensor(DType::kBool, {1, 2, 20, 40}, {0, 0, 40, 1});
  call.logsumexp = HostTensor::Dense(DType::kFloat32, {1, 2, 20});
  for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
  call.mask.ForEach([&](const auto& index) { call.mask.Set(index, index[2] != 7); });
  call.Run(*machine_);
  call.Expect();
  EXPECT_EQ(call.out.At(Index{0, 1, 7, 3}), 0);
  EXPECT_EQ(call.logsumexp.At(Index{0, 1, 7}), 0);
}

TEST_P(AttentionOfType, NanAndWideHeads) {
  Random random(6);
  Call call;
  call.q = HostTensor::Dense(type(), {1, 1, 70, 3000});
  call.k = call.v = HostTensor::Dense(type(), {1, 1, 5, 3000});
  call.out = HostTensor::Dense(type(), {1, 1, 70, 3000});
  call.scale = 0.02;
  for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
  call.Run(*machine_);
  call.Expect();
  call.q.Set(Index{0, 0, 3, 5}, NAN);
  call.Run(*machine_);
  EXPECT_TRUE(std::isnan(call.out.At(Index{0, 0, 3, 0})));
  EXPECT_FALSE(std::isnan(call.out.At(Index{0, 0, 4, 0})));
}

// Shapes and layouts of models, at each depth with a kernel of its own: aligned, with enough groups for a
// GPU's larger tiles, with so few that it cuts keys, with shared key heads, each kind of mask, causal.
TEST_P(AttentionOfType, ShapesOfModelsAgreeWithTheDefinition) {
  Random random(12);
  const int64_t shapes[][6] = {{17, 8, 8, 150, 150, 32},  {34, 8, 2, 70, 100, 64},  {34, 8, 8, 70, 65, 128},
                               {2, 12, 12, 128, 128, 32}, {1, 2, 1, 1, 300, 64},    {1, 3, 3, 129, 257, 96},
                               {1, 4, 2, 1, 1100, 64},    {1, 2, 2, 100, 700, 128}, {2, 3, 3, 20, 520, 32},
                               {17, 4, 2, 200, 260, 64},  {9, 8, 8, 135, 200, 128}, {3, 7, 7, 385, 384, 64}};
  for (const auto& [batch, heads, key_heads, queries, keys, depth] : shapes) {
    for (int mask = 0; mask < 4; ++mask) {
      const bool many = batch > 2;  // tiles for many groups, which only a GPU has
      if (many && (!machine_->on_gpu || mask == 2)) continue;
      Call call;
      call.q = HostTensor::Laid(type(), {batch, heads, queries, depth}, {0, 2, 1, 3}, 0);
      call.k = HostTensor::Laid(type(), {batch, key_heads, keys, depth}, {0, 2, 1, 3}, 0);
      call.v = HostTensor::Laid(type(), {batch, key_heads, keys, depth}, {0, 2, 1, 3}, 0);
      call.out = HostTensor::Laid(type(), {batch, heads, queries, depth}, {0, 2, 1, 3}, 0);
      for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
      if (mask == 1) call.mask = HostTensor(DType::kBool, {batch, heads, queries, keys}, {keys, 0, 0, 1});
      if (mask == 2)
        call.mask = HostTensor(type(), {batch, heads, queries, keys}, {queries * keys, 0, keys, 1});
      if (call.mask.present()) call.mask.Fill(random);
      if (mask != 1) call.logsumexp = HostTensor::Dense(DType::kFloat32, {batch, heads, queries});
      call.causal = mask == 3;
      call.scale = mask == 2 && depth == 32 ? -0.2 : 1 / std::sqrt(static_cast<double>(depth));
      SCOPED_TRACE(::testing::Message()
                   << "S " << queries << " T " << keys << " D " << depth << " mask " << mask);
      call.Run(*machine_);
      call.Expect();
      if (HasFailure()) return;
    }
  }
}

TEST_P(HostAttentionOfType, NumberOfWorkersDoesNotChangeABit) {
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    Call one = RandomCall(random, GetParam());
    Call four = one;
    one.Run(1);
    four.Run(4);
    EXPECT_EQ(one.out.bytes(), four.out.bytes());
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<On, DType>>& info) {
  constexpr const char* kNames[] = {"Host_", "Gpu_", "GpuAsOlder_", "HostInPairs_"};
  const auto [on, type] = info.param;
  return kNames[static_cast<int>(on)] + std::string(ops::Info(type).name);
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionOfType,
                         ::testing::Combine(::testing::Values(On::kHost, On::kGpu, On::kGpuAsOlder),
                                            ::testing::Values(DType::kFloat32, DType::kFloat64,
                                                              DType::kBFloat16, DType::kFloat16)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(InPairs, AttentionOfType,
                         ::testing::Combine(::testing::Values(On::kHostInPairs),
                                            ::testing::Values(DType::kBFloat16)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Types, HostAttentionOfType,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                           DType::kFloat16),
                         [](const auto& param) { return std::string(ops::Info(param.param).name); });

TEST(Attention, EveryInstructionSetAgreesWithTheDefinition) {
  Random random(8);
  int count = 0;
  const simd::Functions* const* supported = simd::Supported(&count);
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
    for (int i = 0; i < count; ++i) {
      const simd::AttentionFunctions& functions = supported[i]->AttentionOf(type);
      Call call;
      call.q = HostTensor::Dense(type, {1, 1, 50, 40});
      call.k = call.v = HostTensor::Dense(type, {1, 1, 200, 40});
      call.out = HostTensor::Dense(type, {1, 1, 50, 40});
      call.rounds_weights = functions.in_pairs;
      for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
      simd::AttentionTile tile;
      tile.dtype = type;
      tile.queries = 50;
      tile.keys = 200;
      tile.depth = tile.value_depth = tile.q_row = tile.k_row = tile.v_row = tile.out_row = 40;
      tile.q_column = tile.k_column = tile.v_column = tile.out_column = 1;
      tile.q = call.q.operand().data;
      tile.k = call.k.operand().data;
      tile.v = call.v.operand().data;
      tile.out = call.out.operand().data;
      std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, XPUD_HOST_SCRATCH_BYTES),
                                                          &std::free);
      tile.scratch = scratch.get();
      ASSERT_LE(functions.scratch(tile), XPUD_HOST_SCRATCH_BYTES);
      functions.attend(tile);
      SCOPED_TRACE(::testing::Message() << supported[i]->isa << " " << ops::Info(type).name);
      call.Expect();
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
