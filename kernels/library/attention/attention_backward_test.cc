// kAttentionBackward, and dropout in kTrainingAttention, on all devices that support them.
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

// Row-major without gaps.
std::vector<double> Values(const HostTensor& tensor) {
  std::vector<double> values;
  values.reserve(tensor.shape().numel());
  tensor.ForEach([&](const auto& index) { values.push_back(tensor.At(index)); });
  return values;
}

// Philox4x32-10 of op_table.h, counter {block, 0, 0}.
std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t block) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
  }
  return c;
}

DType SumType(DType type) { return type == DType::kFloat64 ? type : DType::kFloat32; }

// A number and the sum of the magnitudes of its terms.
struct Sum {
  double value = 0, magnitude = 0;
  void Add(double term, double its_magnitude) {
    value += term;
    magnitude += its_magnitude;
  }
};

class TrainingCall {
 public:
  HostTensor q, k, v, mask, out, logsumexp, gradient, dq, dk, dv;
  bool rounds_weights = false;
  double scale = 1, dropout = 0;
  bool causal = false;
  int64_t seed = 12345678901, offset = 77;

  // Makes results for q, k and v.
  void MakeResults(Random& random) {
    const DType type = q.shape().dtype;
    const auto sizes = [](const HostTensor& t) {
      return std::vector<int64_t>(t.shape().sizes.begin(), t.shape().sizes.begin() + 4);
    };
    std::vector<int64_t> of_out = sizes(q);
    of_out[3] = sizes(v)[3];
    out = RandomLayout(random, type, of_out);
    gradient = RandomLayout(random, type, of_out);
    gradient.Fill(random);
    dq = RandomLayout(random, type, sizes(q));
    dk = RandomLayout(random, type, sizes(k));
    dv = RandomLayout(random, type, sizes(v));
    of_out.pop_back();
    logsumexp = HostTensor::Dense(SumType(type), of_out);
  }

  // Computes the definition: weights before and after dropout, and the exact out and logsumexp.
  void Define() {
    const std::vector<double> queries = Values(q), all_keys = Values(k), values = Values(v);
    weights_.assign(Heads() * Queries() * Keys(), 0);
    factors_.assign(weights_.size(), 1);
    out_.assign(Heads() * Queries() * ValueDepth(), Sum{});
    logsumexp_.assign(Heads() * Queries(), 0);
    for (int64_t row = 0; row < Heads() * Queries(); ++row) DefineRow(row, queries, all_keys, values);
  }
  // Stores the definition's out and logsumexp as the forward pass would.
  void StoreForward() {
    size_t at = 0;
    out.ForEach([&](const auto& index) { out.Set(index, out_[at++].value); });
    at = 0;
    logsumexp.ForEach([&](const auto& index) { logsumexp.Set(index, logsumexp_[at++]); });
  }

  void RunForward(Machine& machine) {
    const Operand outputs[] = {machine.device->Place(out), machine.device->Place(logsumexp)};
    const Operand inputs[] = {machine.device->Place(q), machine.device->Place(k), machine.device->Place(v),
                              machine.device->Place(mask)};
    Run(machine, "xpud::training_attention", outputs, inputs);
  }
  void RunBackward(Machine& machine) {
    const Operand outputs[] = {machine.device->Place(dq), machine.device->Place(dk),
                               machine.device->Place(dv)};
    const Operand inputs[] = {machine.device->Place(gradient), machine.device->Place(q),
                              machine.device->Place(k),        machine.device->Place(v),
                              machine.device->Place(out),      machine.device->Place(logsumexp),
                              machine.device->Place(mask)};
    Run(machine, "xpud::attention_backward", outputs, inputs);
  }

  void ExpectForward() const {
    ExpectAll("out", out, out_);
    size_t at = 0;
    int wrong = 0;
    logsumexp.ForEach([&](const auto& index) {
      const double wanted = logsumexp_[at++], got = logsumexp.At(index);
      const double tolerance = (q.shape().dtype == DType::kFloat64 ? 1e-13 : 1e-5) * (1 + std::abs(wanted));
      if (!(std::abs(got - wanted) <= tolerance) && ++wrong <= 3)
        ADD_FAILURE() << "logsumexp " << at - 1 << ": " << got << ", expected " << wanted;
    });
  }

  // Compares with the derivatives, in double precision.
  void ExpectGradients() const {
    const std::vector<double> queries = Values(q), all_keys = Values(k), values = Values(v),
                              outs = Values(out), gradients = Values(gradient);
    std::vector<Sum> wanted_q(queries.size()), wanted_k(all_keys.size()), wanted_v(values.size());
    for (int64_t row = 0; row < Heads() * Queries(); ++row) {
      const double* const g = gradients.data() + row * ValueDepth();
      Sum delta;
      for (int64_t e = 0; e < ValueDepth(); ++e) {
        const double term = g[e] * outs[row * ValueDepth() + e];
        delta.Add(term, std::abs(term));
      }
      for (int64_t t = 0; t < Keys(); ++t) {
        const int64_t key = KeyRow(row, t);
        const double weight = weights_[row * Keys() + t], factor = factors_[row * Keys() + t];
        Sum dp;
        for (int64_t e = 0; e < ValueDepth(); ++e) {
          const double term = g[e] * values[key * ValueDepth() + e] * factor;
          dp.Add(term, std::abs(term));
          wanted_v[key * ValueDepth() + e].Add(weight * factor * g[e], std::abs(weight * factor * g[e]));
        }
        const double slope = weight * (dp.value - delta.value) * scale,
                     magnitude = weight * (dp.magnitude + delta.magnitude) * std::abs(scale);
        for (int64_t d = 0; d < Depth(); ++d) {
          const double by_query = all_keys[key * Depth() + d], by_key = queries[row * Depth() + d];
          wanted_q[row * Depth() + d].Add(slope * by_query, magnitude * std::abs(by_query));
          wanted_k[key * Depth() + d].Add(slope * by_key, magnitude * std::abs(by_key));
        }
      }
    }
    ExpectAll("dq", dq, wanted_q);
    ExpectAll("dk", dk, wanted_k);
    ExpectAll("dv", dv, wanted_v);
  }

  double KeptShare() const {
    return static_cast<double>(
               std::count_if(factors_.begin(), factors_.end(), [](double f) { return f != 0; })) /
           static_cast<double>(factors_.size());
  }

 private:
  int64_t Heads() const { return q.shape().sizes[0] * q.shape().sizes[1]; }
  int64_t Queries() const { return q.shape().sizes[2]; }
  int64_t Keys() const { return k.shape().sizes[2]; }
  int64_t Depth() const { return q.shape().sizes[3]; }
  int64_t ValueDepth() const { return v.shape().sizes[3]; }
  // The row of key t in k for a row of q, of all batches and heads.
  int64_t KeyRow(int64_t row, int64_t t) const {
    const int64_t heads = q.shape().sizes[1], key_heads = k.shape().sizes[1];
    const int64_t h = row / Queries() % heads, b = row / Queries() / heads;
    return (b * key_heads + h / (heads / key_heads)) * Keys() + t;
  }

  void Run(Machine& machine, const char* row, std::span<const Operand> outputs,
           std::span<const Operand> inputs) {
    rounds_weights = testing::RoundsWeights(machine.on_gpu, q.shape().dtype);
    const ops::Number attributes[] = {ops::Number::Real(scale), ops::Number::Integer(causal),
                                      ops::Number::Real(dropout), ops::Number::Integer(seed),
                                      ops::Number::Integer(offset)};
    OpCall call;
    call.row = &ops::RowOf(row);
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    LaunchList launches;
    const absl::Status planned = machine.device->Plan(*machine.planner, call, launches);
    ASSERT_TRUE(planned.ok()) << planned;
    machine.device->Run(launches);
  }

  double Factor(int64_t element) const {
    if (dropout == 0) return 1;
    const auto words = Philox(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset + element / 4));
    return (words[element % 4] >> 8) * 0x1p-24 >= dropout ? 1 / (1 - dropout) : 0;
  }

  void DefineRow(int64_t row, const std::vector<double>& queries, const std::vector<double>& all_keys,
                 const std::vector<double>& values) {
    const int64_t heads = q.shape().sizes[1], s = row % Queries();
    const Index place{row / Queries() / heads, row / Queries() % heads, s};
    double* const weights = weights_.data() + row * Keys();
    double top = -INFINITY, sum = 0;
    for (int64_t t = 0; t < Keys(); ++t) {
      double dot = 0;
      for (int64_t d = 0; d < Depth(); ++d)
        dot += queries[row * Depth() + d] * all_keys[KeyRow(row, t) * Depth() + d];
      Index index = place;
      index[3] = t;
      weights[t] = causal && t > s ? -INFINITY : Masked(dot * scale, index);
      top = std::max(top, weights[t]);
    }
    for (int64_t t = 0; t < Keys(); ++t) sum += top == -INFINITY ? 0 : std::exp(weights[t] - top);
    for (int64_t t = 0; t < Keys(); ++t) {
      weights[t] = sum == 0 ? 0 : std::exp(weights[t] - top) / sum;
      const double factor = factors_[row * Keys() + t] = Factor(row * Keys() + t);
      for (int64_t e = 0; e < ValueDepth(); ++e) {
        const double term = weights[t] * factor * values[KeyRow(row, t) * ValueDepth() + e];
        out_[row * ValueDepth() + e].Add(term, std::abs(term));
      }
    }
    logsumexp_[row] = sum == 0 ? 0 : top + std::log(sum);
  }
  double Masked(double score, const Index& index) const {
    if (!mask.present()) return score;
    const double m = mask.At(index);
    return mask.shape().dtype != DType::kBool ? score + m : m != 0 ? score : -INFINITY;
  }

  void ExpectAll(const char* name, const HostTensor& got, const std::vector<Sum>& wanted) const {
    const double epsilon = testing::Epsilon(q.shape().dtype),
                 accumulate = q.shape().dtype == DType::kFloat64 ? 1e-14 : 1e-5;
    size_t at = 0;
    int wrong = 0;
    got.ForEach([&](const auto& index) {
      const Sum& sum = wanted[at++];
      const double tolerance = epsilon * std::abs(sum.value) + accumulate * (sum.magnitude + 0.01) +
                               (rounds_weights ? epsilon / 2 * sum.magnitude : 0);
      if (!(std::abs(got.At(index) - sum.value) <= tolerance) && ++wrong <= 3)
        ADD_FAILURE() << name << " " << index[0] << "," << index[1] << "," << index[2] << "," << index[3]
                      << ": " << got.At(index) << ", expected " << sum.value << " within " << tolerance;
    });
    EXPECT_EQ(wrong, 0) << name;
  }

  std::vector<double> weights_, factors_, logsumexp_;
  std::vector<Sum> out_;
};

TrainingCall RandomCall(Random& random, DType type) {
  const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 33, 64, 65, 128, 150, 260},
                depths[] = {1, 3, 8, 16, 20, 32, 64, 80};
  const int64_t batch = 1 + random() % 2, key_heads = 1 + random() % 3,
                heads = key_heads * (1 + random() % 3);
  const int64_t queries = sizes[random() % 12], keys = sizes[random() % 12];
  const int64_t depth = depths[random() % 8], value_depth = random() % 2 ? depth : depths[random() % 8];
  TrainingCall call;
  call.q = RandomLayout(random, type, {batch, heads, queries, depth});
  call.k = RandomLayout(random, type, {batch, key_heads, keys, depth});
  call.v = RandomLayout(random, type, {batch, key_heads, keys, value_depth});
  for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
  if (random() % 2) call.mask = RandomMask(random, type, {batch, heads, queries, keys});
  call.scale = random() % 2 ? 1 / std::sqrt(static_cast<double>(depth)) : 0.3;
  call.causal = random() % 3 == 0;
  call.dropout = random() % 2 ? 0 : std::array{0.1, 0.5, 0.9, 1.0}[random() % 4];
  call.offset = static_cast<int64_t>(random() % 1000);
  call.MakeResults(random);
  return call;
}

std::string Named(const TrainingCall& call) {
  const auto &q = call.q.shape().sizes, &k = call.k.shape().sizes;
  return ::testing::PrintToString(std::array{q[0], q[1], k[1], q[2], k[2], q[3], call.v.shape().sizes[3]}) +
         " causal " + std::to_string(call.causal) + " mask " + std::to_string(call.mask.present()) +
         " dropout " + std::to_string(call.dropout);
}

class TrainingOfType : public ::testing::TestWithParam<std::tuple<On, DType>> {
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
  }
  void TearDown() override { simd::UseInTests(nullptr); }
  DType type() const { return std::get<1>(GetParam()); }

  Machine host_{2};
  Machine* machine_ = nullptr;
};

TEST_P(TrainingOfType, EveryLayoutMaskAndSizeAgreesWithTheDefinition) {
  Random random(static_cast<int>(type()) + 200);
  for (int round = 0; round < 80; ++round) {
    TrainingCall call = RandomCall(random, type());
    SCOPED_TRACE(::testing::Message() << "round " << round << " " << Named(call));
    call.Define();
    call.RunForward(*machine_);
    call.ExpectForward();
    call.StoreForward();
    HostTensor untouched[] = {call.dq, call.dk, call.dv};
    call.RunBackward(*machine_);
    call.ExpectGradients();
    HostTensor* const written[] = {&call.dq, &call.dk, &call.dv};
    for (int i = 0; i < 3; ++i) {
      written[i]->ForEach([&](const auto& index) { untouched[i].Set(index, written[i]->At(index)); });
      EXPECT_EQ(untouched[i].bytes(), written[i]->bytes());
    }
    if (HasFailure()) return;
  }
}

// Shapes and layouts of models at each depth: aligned, with shared key heads, each kind of mask, causal,
// dropout.
TEST_P(TrainingOfType, ShapesOfModelsAgreeWithTheDefinition) {
  Random random(12);
  const int64_t shapes[][6] = {{2, 4, 4, 128, 128, 32}, {1, 4, 2, 70, 300, 64},  {1, 2, 2, 200, 65, 128},
                               {1, 3, 1, 129, 257, 96}, {2, 2, 2, 385, 384, 64}, {1, 2, 2, 20, 1100, 64},
                               {1, 1, 1, 1100, 20, 48}};
  for (const auto& [batch, heads, key_heads, queries, keys, depth] : shapes) {
    for (int kind = 0; kind < 6; ++kind) {
      TrainingCall call;
      const auto laid = [&](int64_t h, int64_t s) {
        HostTensor t = HostTensor::Laid(type(), {batch, h, s, depth}, {0, 2, 1, 3}, 0);
        t.Fill(random);
        return t;
      };
      call.q = laid(heads, queries);
      call.k = laid(key_heads, keys);
      call.v = laid(key_heads, keys);
      call.MakeResults(random);
      for (HostTensor* t : {&call.out, &call.gradient, &call.dq}) *t = laid(heads, queries);
      for (HostTensor* t : {&call.dk, &call.dv}) *t = laid(key_heads, keys);
      if (kind == 1) call.mask = HostTensor(DType::kBool, {batch, heads, queries, keys}, {keys, 0, 0, 1});
      if (kind == 2 || kind == 5)
        call.mask = HostTensor(type(), {batch, heads, queries, keys}, {queries * keys, 0, keys, 1});
      if (call.mask.present()) call.mask.Fill(random);
      call.causal = kind == 3 || kind == 5;
      if (kind >= 4) call.dropout = 0.25;
      call.scale = kind == 2 && depth == 32 ? -0.2 : 1 / std::sqrt(static_cast<double>(depth));
      SCOPED_TRACE(::testing::Message() << Named(call) << " kind " << kind);
      call.Define();
      call.RunForward(*machine_);
      call.ExpectForward();
      call.StoreForward();
      call.RunBackward(*machine_);
      call.ExpectGradients();
      if (HasFailure()) return;
    }
  }
}

// On GPUs, kernels for long sequences need many items, and tensors that are aligned. Other devices have no
// such kernels.
TEST_P(TrainingOfType, ManyLongSequences) {
  if (!machine_->on_gpu || ops::SizeOf(type()) != 2) GTEST_SKIP() << "no kernels of their own";
  auto gpu = testing::CudaDevice::Create(/*misalign=*/false);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const std::string processor = (*gpu)->processor();
  Machine aligned(*std::move(gpu), processor);
  Random random(17);
  struct Sizes {
    int64_t batch, heads, key_heads, queries, keys, depth, value_depth;
    bool causal;
  };
  const Sizes shapes[] = {{2, 14, 14, 384, 384, 64, 64, false},  {2, 14, 14, 384, 384, 64, 64, true},
                          {2, 14, 14, 300, 300, 128, 128, true}, {2, 14, 7, 300, 290, 128, 128, false},
                          {3, 12, 3, 257, 400, 128, 80, true},   {3, 12, 4, 400, 386, 40, 64, true},
                          {1, 28, 28, 389, 385, 64, 56, false},  {2, 14, 14, 300, 40, 96, 128, true}};
  for (const Sizes& s : shapes) {
    TrainingCall call;
    const auto laid = [&](int64_t h, int64_t rows, int64_t depth) {
      HostTensor t = HostTensor::Laid(type(), {s.batch, h, rows, depth}, {0, 2, 1, 3}, 0);
      t.Fill(random);
      return t;
    };
    call.q = laid(s.heads, s.queries, s.depth);
    call.k = laid(s.key_heads, s.keys, s.depth);
    call.v = laid(s.key_heads, s.keys, s.value_depth);
    call.MakeResults(random);
    for (HostTensor* t : {&call.out, &call.gradient}) *t = laid(s.heads, s.queries, s.value_depth);
    call.dq = laid(s.heads, s.queries, s.depth);
    call.dk = laid(s.key_heads, s.keys, s.depth);
    call.dv = laid(s.key_heads, s.keys, s.value_depth);
    call.causal = s.causal;
    call.scale = 1 / std::sqrt(static_cast<double>(s.depth));
    SCOPED_TRACE(Named(call));
    call.Define();
    call.RunForward(aligned);
    call.ExpectForward();
    call.StoreForward();
    call.RunBackward(aligned);
    call.ExpectGradients();
    const std::vector<double> dq = Values(call.dq), dk = Values(call.dk), dv = Values(call.dv);
    call.RunBackward(aligned);
    EXPECT_TRUE(dq == Values(call.dq) && dk == Values(call.dk) && dv == Values(call.dv)) << "not repeatable";
  }
}

TEST_P(TrainingOfType, RowWithoutKeysGivesNoGradient) {
  Random random(5);
  TrainingCall call;
  call.q = HostTensor::Dense(type(), {1, 2, 20, 32});
  call.k = HostTensor::Dense(type(), {1, 2, 40, 32});
  call.v = HostTensor::Dense(type(), {1, 2, 40, 32});
  call.mask = HostTensor(DType::kBool, {1, 2, 20, 40}, {0, 0, 40, 1});
  for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
  call.mask.ForEach([&](const auto& index) { call.mask.Set(index, index[2] != 7 && index[3] != 3); });
  call.MakeResults(random);
  call.Define();
  call.StoreForward();
  call.RunBackward(*machine_);
  call.ExpectGradients();
  EXPECT_EQ(call.dq.At(Index{0, 1, 7, 3}), 0);
  EXPECT_EQ(call.dk.At(Index{0, 1, 3, 3}), 0);
  EXPECT_EQ(call.dv.At(Index{0, 1, 3, 3}), 0);
}

TEST_P(TrainingOfType, WideHeads) {
  Random random(6);
  TrainingCall call;
  call.q = HostTensor::Dense(type(), {1, 1, 40, 1500});
  call.k = HostTensor::Dense(type(), {1, 1, 70, 1500});
  call.v = HostTensor::Dense(type(), {1, 1, 70, 1100});
  for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
  call.scale = 0.02;
  call.dropout = 0.3;
  call.MakeResults(random);
  call.Define();
  call.RunForward(*machine_);
  call.ExpectForward();
  call.StoreForward();
  call.RunBackward(*machine_);
  call.ExpectGradients();
}

TEST_P(TrainingOfType, RepeatedRunsAreEqualBitForBit) {
  Random random(9);
  for (int round = 0; round < 6; ++round) {
    TrainingCall call = RandomCall(random, type());
    call.Define();
    call.StoreForward();
    call.RunBackward(*machine_);
    const HostTensor first[] = {call.dq, call.dk, call.dv};
    call.RunBackward(*machine_);
    const HostTensor* const second[] = {&call.dq, &call.dk, &call.dv};
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Values(first[i]), Values(*second[i]));
  }
}

TEST(AttentionDropout, KeepsTheShareThatItShould) {
  Random random(1);
  for (const double p : {0.1, 0.5, 0.75}) {
    TrainingCall call;
    call.q = HostTensor::Dense(DType::kFloat32, {1, 2, 300, 4});
    call.k = HostTensor::Dense(DType::kFloat32, {1, 2, 301, 4});
    call.v = HostTensor::Dense(DType::kFloat32, {1, 2, 301, 4});
    for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
    call.dropout = p;
    call.MakeResults(random);
    call.Define();
    EXPECT_NEAR(call.KeptShare(), 1 - p, 0.005);
    Machine machine(1);
    call.RunForward(machine);
    call.ExpectForward();
  }
}

class HostTrainingOfType : public ::testing::TestWithParam<DType> {};

TEST_P(HostTrainingOfType, NumberOfWorkersDoesNotChangeABit) {
  Random random(3);
  Machine one(1), four(4);
  for (int round = 0; round < 20; ++round) {
    TrainingCall call = RandomCall(random, GetParam());
    if (round == 0) {  // long enough for several parts
      call.q = HostTensor::Dense(GetParam(), {1, 1, 100, 16});
      call.k = call.v = HostTensor::Dense(GetParam(), {1, 1, 1700, 16});
      for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
      call.mask = HostTensor();
      call.MakeResults(random);
    }
    call.Define();
    call.StoreForward();
    TrainingCall other = call;
    call.RunBackward(one);
    other.RunBackward(four);
    if (round == 0) call.ExpectGradients();
    EXPECT_EQ(call.dq.bytes(), other.dq.bytes());
    EXPECT_EQ(call.dk.bytes(), other.dk.bytes());
    EXPECT_EQ(call.dv.bytes(), other.dv.bytes());
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<On, DType>>& info) {
  constexpr const char* kNames[] = {"Host_", "Gpu_", "GpuAsOlder_", "HostInPairs_"};
  const auto [on, type] = info.param;
  return kNames[static_cast<int>(on)] + std::string(ops::Info(type).name);
}

INSTANTIATE_TEST_SUITE_P(Devices, TrainingOfType,
                         ::testing::Combine(::testing::Values(On::kHost, On::kGpu),
                                            ::testing::Values(DType::kFloat32, DType::kFloat64,
                                                              DType::kBFloat16, DType::kFloat16)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(InPairs, TrainingOfType,
                         ::testing::Combine(::testing::Values(On::kHostInPairs),
                                            ::testing::Values(DType::kBFloat16)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Types, HostTrainingOfType,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                           DType::kFloat16),
                         [](const auto& param) { return std::string(ops::Info(param.param).name); });

// The tile functions of each instruction set, for one part of the keys.
TEST(AttentionBackward, EveryInstructionSetAgrees) {
  Random random(8);
  int count = 0;
  const simd::Functions* const* supported = simd::Supported(&count);
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
    for (int i = 0; i < count; ++i) {
      const simd::AttentionFunctions& functions = supported[i]->AttentionOf(type);
      random.seed(8);
      TrainingCall call;
      call.rounds_weights = functions.in_pairs;
      call.q = HostTensor::Dense(type, {1, 1, 48, 40});
      call.k = HostTensor::Dense(type, {1, 1, 200, 40});
      call.v = HostTensor::Dense(type, {1, 1, 200, 40});
      for (HostTensor* t : {&call.q, &call.k, &call.v}) t->Fill(random);
      call.scale = 0.2;
      call.dropout = 0.2;
      call.MakeResults(random);
      for (HostTensor* t : {&call.out, &call.gradient, &call.dq})
        *t = HostTensor::Dense(type, {1, 1, 48, 40});
      for (HostTensor* t : {&call.dk, &call.dv}) *t = HostTensor::Dense(type, {1, 1, 200, 40});
      call.gradient.Fill(random);
      call.Define();
      call.StoreForward();
      std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, XPUD_HOST_SCRATCH_BYTES),
                                                          &std::free),
          sums(std::aligned_alloc(64, 64 * 1024), &std::free);
      const auto matrix = [](HostTensor& t) {
        return simd::HeadMatrix{t.operand().data, 0, t.shape().strides[2], 1};
      };
      simd::AttentionGradientTile tile;
      tile.dtype = type;
      tile.heads = 1;
      tile.queries = tile.queries_per_tile = 48;
      tile.keys = 200;
      tile.depth = tile.value_depth = 40;
      tile.q = matrix(call.q);
      tile.k = matrix(call.k);
      tile.v = matrix(call.v);
      tile.out = matrix(call.out);
      tile.gradient = matrix(call.gradient);
      tile.logsumexp = {call.logsumexp.operand().data, 0, 1, 0};
      tile.dk = matrix(call.dk);
      tile.dv = matrix(call.dv);
      tile.scale = call.scale;
      tile.dropout = {static_cast<uint32_t>(std::ceil(call.dropout * 0x1p24)),
                      1 / (1 - call.dropout),
                      static_cast<uint64_t>(call.seed),
                      static_cast<uint64_t>(call.offset),
                      0,
                      200};
      tile.dq = sums.get();
      tile.delta = static_cast<float*>(sums.get()) + 40 * 48;
      tile.scratch = scratch.get();
      ASSERT_LE(functions.backward_scratch(tile), XPUD_HOST_SCRATCH_BYTES);
      functions.attend_backward(tile);
      const HostTensor& dq = call.dq;
      functions.sum_gradient(
          {type, 48, 48, 40, sums.get(), 1, 0, call.dq.operand().data, dq.shape().strides[2], 1, call.scale});
      SCOPED_TRACE(::testing::Message() << supported[i]->isa << " " << ops::Info(type).name);
      call.ExpectGradients();
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
