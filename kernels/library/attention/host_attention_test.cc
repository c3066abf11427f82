#include <gtest/gtest.h>

#include <utility>

#include "kernels/library/simd/simd.h"
#include "kernels/library/testing/host_device.h"
#include "kernels/library/testing/host_tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using testing::HostDevice;
using testing::HostTensor;
using Random = std::mt19937_64;
using Index = std::array<int64_t, ops::kMaxRank>;

struct Call {
  HostTensor q, k, v, mask, out, logsumexp;
  double scale = 1;
  bool causal = false;

  void Run(int workers) {
    HostDevice device(workers);
    const std::unique_ptr<Planner> planner = CreateHostAttention(device, workers);
    const Operand outputs[] = {out.operand(), logsumexp.operand()};
    const Operand inputs[] = {q.operand(), k.operand(), v.operand(), mask.operand()};
    const ops::Number attributes[] = {ops::Number::Real(scale), ops::Number::Integer(causal)};
    OpCall call;
    call.row = &ops::RowOf("_scaled_dot_product_fused_attention_overrideable");
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    LaunchList launches;
    const auto planned = planner->Plan(call, [&](size_t bytes) { return device.Workspace(bytes); }, launches);
    ASSERT_TRUE(planned.ok()) << planned.status();
    device.Run(launches);
  }

  // softmax(scale q k^T + mask) v in double precision; a row that may attend nothing gives 0, as in PyTorch.
  void Expect() const {
    const auto& size = q.shape().sizes;
    const int64_t keys = k.shape().sizes[2], value_depth = v.shape().sizes[3];
    const int64_t share = size[1] / k.shape().sizes[1];
    const double epsilon = testing::Epsilon(q.shape().dtype);
    const double accumulate = q.shape().dtype == DType::kFloat64 ? 1e-15 : 1e-6;
    int wrong = 0;
    for (int64_t b = 0; b < size[0]; ++b)
      for (int64_t h = 0; h < size[1]; ++h)
        for (int64_t s = 0; s < size[2]; ++s) {
          std::vector<double> score(keys);
          double top = -INFINITY, sum = 0;
          for (int64_t t = 0; t < keys; ++t) {
            double dot = 0;
            for (int64_t d = 0; d < size[3]; ++d)
              dot += q.At(Index{b, h, s, d}) * k.At(Index{b, h / share, t, d});
            score[t] = dot * scale;
            if (causal && t > s) score[t] = -INFINITY;
            if (mask.present()) {
              const double m = mask.At(Index{b, h, s, t});
              if (mask.shape().dtype == DType::kBool)
                score[t] = m != 0 ? score[t] : -INFINITY;
              else
                score[t] += m;
            }
            top = std::max(top, score[t]);
          }
          for (double& x : score) sum += x = top == -INFINITY ? 0 : std::exp(x - top);
          for (int64_t e = 0; e < value_depth; ++e) {
            double expected = 0, magnitude = 0;
            for (int64_t t = 0; t < keys; ++t) {
              expected += score[t] * v.At(Index{b, h / share, t, e});
              magnitude += std::abs(score[t] * v.At(Index{b, h / share, t, e}));
            }
            if (sum != 0) expected /= sum, magnitude /= sum;
            const double got = out.At(Index{b, h, s, e});
            const double tolerance = epsilon * std::abs(expected) + 8 * accumulate * (magnitude + 0.1);
            if (!(std::abs(got - expected) <= tolerance) && ++wrong <= 3)
              ADD_FAILURE() << b << "," << h << "," << s << "," << e << ": " << got << ", expected "
                            << expected;
          }
          if (!logsumexp.present()) continue;
          const double got = logsumexp.At(Index{b, h, s}), expected = sum == 0 ? 0 : top + std::log(sum);
          if (!(got == expected || std::abs(got - expected) <= 1e-5 * (1 + std::abs(expected))) &&
              ++wrong <= 3)
            ADD_FAILURE() << "logsumexp " << b << "," << h << "," << s << ": " << got << ", expected "
                          << expected;
        }
    EXPECT_EQ(wrong, 0);
  }
};

HostTensor RandomLayout(Random& random, DType type, std::vector<int64_t> sizes) {
  std::vector<int> order = {0, 1, 2, 3};
  if (random() % 2) order = {0, 2, 1, 3};
  if (random() % 5 == 0) std::shuffle(order.begin(), order.end(), random);
  return HostTensor::Laid(type, std::move(sizes), order, random() % 3 == 0 ? random() % 9 : 0);
}

HostTensor RandomMask(Random& random, DType type, const std::vector<int64_t>& sizes) {
  const DType mask_type = random() % 2 ? DType::kBool : type;
  HostTensor mask = HostTensor::Dense(mask_type, sizes);
  std::vector<int64_t> strides(mask.shape().strides.begin(), mask.shape().strides.begin() + 4);
  for (int d = 0; d < 3; ++d)
    if (random() % 2) strides[d] = 0;
  HostTensor broadcast(mask_type, sizes, strides);
  broadcast.Fill(random);
  if (mask_type != DType::kBool)
    broadcast.ForEach([&](const auto& index) {
      if (random() % 4 == 0) broadcast.Set(index, -INFINITY);
    });
  return broadcast;
}

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

class AttentionOfType : public ::testing::TestWithParam<DType> {};

TEST_P(AttentionOfType, EveryLayoutMaskAndSizeAgreesWithTheDefinition) {
  Random random(static_cast<int>(GetParam()) + 100);
  for (int round = 0; round < 80; ++round) {
    Call call = RandomCall(random, GetParam());
    const auto& size = call.q.shape().sizes;
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << " S " << size[2] << " T " << call.k.shape().sizes[2] << " D "
                 << size[3] << " E " << call.v.shape().sizes[3] << " causal " << call.causal << " mask "
                 << call.mask.present());
    HostTensor untouched = call.out;
    call.Run(2);
    call.Expect();
    if (HasFailure()) return;
    call.out.ForEach([&](const auto& index) { untouched.Set(index, call.out.At(index)); });
    EXPECT_EQ(untouched.bytes(), call.out.bytes());
  }
}

TEST_P(AttentionOfType, NumberOfWorkersDoesNotChangeABit) {
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    Call one = RandomCall(random, GetParam());
    Call four = one;
    one.Run(1);
    four.Run(4);
    EXPECT_EQ(one.out.bytes(), four.out.bytes());
  }
}

TEST_P(AttentionOfType, RowWithoutKeysGivesZero) {
  Random random(5);
  Call call;
  call.q = HostTensor::Dense(GetParam(), {1, 2, 20, 32});
  call.k = call.v = HostTensor::Dense(GetParam(), {1, 2, 40, 32});
  call.out = HostTensor::Dense(GetParam(), {1, 2, 20, 32});
  call.mask = HostTensor(DType::kBool, {1, 2, 20, 40}, {0, 0, 40, 1});
  call.logsumexp = HostTensor::Dense(DType::kFloat32, {1, 2, 20});
  for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
  call.mask.ForEach([&](const auto& index) { call.mask.Set(index, index[2] != 7); });
  call.Run(1);
  call.Expect();
  EXPECT_EQ(call.out.At(Index{0, 1, 7, 3}), 0);
  EXPECT_EQ(call.logsumexp.At(Index{0, 1, 7}), 0);
}

TEST_P(AttentionOfType, NanAndWideHeads) {
  Random random(6);
  Call call;
  call.q = HostTensor::Dense(GetParam(), {1, 1, 70, 3000});
  call.k = call.v = HostTensor::Dense(GetParam(), {1, 1, 5, 3000});
  call.out = HostTensor::Dense(GetParam(), {1, 1, 70, 3000});
  call.scale = 0.02;
  for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
  call.Run(2);
  call.Expect();
  call.q.Set(Index{0, 0, 3, 5}, NAN);
  call.Run(2);
  EXPECT_TRUE(std::isnan(call.out.At(Index{0, 0, 3, 0})));
  EXPECT_FALSE(std::isnan(call.out.At(Index{0, 0, 4, 0})));
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionOfType,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                           DType::kFloat16),
                         [](const auto& param) { return std::string(ops::Info(param.param).name); });

TEST(Attention, EveryInstructionSetAgreesWithTheDefinition) {
  Random random(8);
  int count = 0;
  const simd::Functions* const* supported = simd::Supported(&count);
  for (int i = 0; i < count; ++i) {
    Call call;
    call.q = HostTensor::Dense(DType::kFloat32, {1, 1, 50, 40});
    call.k = call.v = HostTensor::Dense(DType::kFloat32, {1, 1, 200, 40});
    call.out = HostTensor::Dense(DType::kFloat32, {1, 1, 50, 40});
    for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
    simd::AttentionTile tile;
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
    ASSERT_LE(supported[i]->attend_scratch(tile), XPUD_HOST_SCRATCH_BYTES);
    supported[i]->attend(tile);
    SCOPED_TRACE(supported[i]->isa);
    call.Expect();
  }
}

}  // namespace
}  // namespace xpud::kernels
