#include "kernels/library/onednn/onednn_matmul.h"

#include <gtest/gtest.h>

#include "kernels/library/simd/simd.h"
#include "kernels/library/testing/host_device.h"
#include "kernels/library/testing/host_tensor.h"

namespace xpud::kernels::onednn {
namespace {

using ops::Activation;
using ops::DType;
using testing::HostDevice;
using testing::HostTensor;
using Random = std::mt19937_64;

// A planner with its device.
struct Machine {
  explicit Machine(int workers, size_t packed_bytes = size_t{1} << 28)
      : device(workers), planner(device, {.workers = workers, .packed_bytes = packed_bytes}) {}
  HostDevice device;
  OnednnMatmul planner;
  LaunchList launches;

  absl::Status Plan(HostTensor& out, HostTensor& a, HostTensor& b, HostTensor& c, double beta, double alpha,
                    Activation activation) {
    const Operand outputs[] = {out.operand()};
    const Operand inputs[] = {a.operand(), b.operand(), c.operand()};
    const ops::Number attributes[] = {ops::Number::Real(beta), ops::Number::Real(alpha),
                                      ops::Number::Integer(static_cast<int64_t>(activation))};
    OpCall call;
    call.row = &ops::RowOf("addmm");
    call.compute = inputs[0].dtype;
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    launches.Clear();
    return planner.Plan(call, [&](size_t bytes) { return device.Workspace(bytes); }, launches).status();
  }
  void Execute(HostTensor& out, HostTensor& a, HostTensor& b, HostTensor& c, double beta = 1,
               double alpha = 1, Activation activation = Activation::kNone) {
    const absl::Status status = Plan(out, a, b, c, beta, alpha, activation);
    ASSERT_TRUE(status.ok()) << status;
    device.Run(launches);
  }
};

double Activate(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

// Checks `out` against the definition in double precision; `before` is c as it was (c may have been
// overwritten through out).
void ExpectProduct(const HostTensor& out, const HostTensor& a, const HostTensor& b, const HostTensor& before,
                   double beta, double alpha, Activation activation) {
  const Operand& shape = out.shape();
  const int last = shape.rank - 1;
  const int64_t depth = a.shape().sizes[last];
  const double epsilon = testing::Epsilon(shape.dtype);
  int wrong = 0;
  out.ForEach([&](auto index) {
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < depth; ++k) {
      auto ia = index, ib = index;
      ia[last] = k;
      ib[last - 1] = k;
      const double term = a.At(ia) * b.At(ib);
      sum += term;
      magnitude += std::abs(term);
    }
    double expected = alpha * sum;
    if (before.present() && beta != 0) {
      std::array<int64_t, ops::kMaxRank> ic{};
      const int shift = shape.rank - before.shape().rank;
      for (int d = 0; d < before.shape().rank; ++d) ic[d] = index[d + shift];
      expected += beta * before.At(ic);
    }
    magnitude = std::abs(alpha) * magnitude + std::abs(expected);
    expected = Activate(expected, activation);
    const double accumulate = shape.dtype == DType::kFloat64 ? 2.3e-16 : 1.2e-7;
    const double tolerance = epsilon * (std::abs(expected) + 1e-3) + accumulate * (8 * magnitude + 4);
    if (!(std::abs(out.At(index) - expected) <= tolerance) && ++wrong <= 3)
      ADD_FAILURE() << "at " << index[0] << "," << index[1] << "," << index[2] << ": " << out.At(index)
                    << ", expected " << expected << " within " << tolerance;
  });
  EXPECT_EQ(wrong, 0);
}

// A random layout of a stack of matrices: any order of axes, gaps, broadcast over the batch or over any axis.
HostTensor RandomLayout(Random& random, DType type, const std::vector<int64_t>& sizes, bool written) {
  std::vector<int> order;
  for (size_t d = 0; d < sizes.size(); ++d) order.push_back(static_cast<int>(d));
  if (random() % 3 == 0) std::swap(order[order.size() - 1], order[order.size() - 2]);
  if (random() % 6 == 0) std::shuffle(order.begin(), order.end(), random);
  const int64_t padding = random() % 3 == 0 ? static_cast<int64_t>(random() % 20) : 0;
  HostTensor laid = HostTensor::Laid(type, sizes, order, padding);
  if (written || random() % 5 != 0) return laid;
  std::vector<int64_t> strides(laid.shape().strides.begin(), laid.shape().strides.begin() + sizes.size());
  strides[random() % sizes.size()] = random() % 3 == 0 ? 2 : 0;  // broadcast, or overlapping
  return HostTensor(type, sizes, strides);
}

HostTensor RandomAddend(Random& random, DType type, const std::vector<int64_t>& out) {
  const int64_t n = out.back(), m = out[out.size() - 2];
  switch (random() % 6) {
    case 0:
      return HostTensor::Dense(type, {n});
    case 1:
      return HostTensor::Dense(type, {1, n});
    case 2:
      return HostTensor::Dense(type, {m, 1});
    case 3:
      return HostTensor::Dense(type, {1});
    case 4:
      return HostTensor();
    default:
      return RandomLayout(random, type, out, false);
  }
}

int64_t RandomSize(Random& random) {
  const int64_t choices[] = {0, 1, 2, 3, 7, 16, 17, 31, 64, 65, 100, 130, 200, 257};
  return choices[random() % 40 == 0 ? 0 : 1 + random() % 13];
}

class MatmulOfType : public ::testing::TestWithParam<DType> {};

TEST_P(MatmulOfType, EveryLayoutAndEpilogueAgreesWithTheDefinition) {
  Random random(static_cast<int>(GetParam()));
  Machine machine(2);
  for (int round = 0; round < 160; ++round) {
    const int64_t m = RandomSize(random), n = RandomSize(random), k = RandomSize(random);
    std::vector<int64_t> out_sizes = {m, n}, a_sizes = {m, k}, b_sizes = {k, n};
    if (random() % 2 == 0) {
      const int64_t batch = 1 + random() % 5;
      for (auto* sizes : {&out_sizes, &a_sizes, &b_sizes}) sizes->insert(sizes->begin(), batch);
    }
    HostTensor a = RandomLayout(random, GetParam(), a_sizes, false),
               b = RandomLayout(random, GetParam(), b_sizes, false);
    HostTensor out = RandomLayout(random, GetParam(), out_sizes, true),
               c = RandomAddend(random, GetParam(), out_sizes);
    for (HostTensor* t : {&a, &b, &c})
      if (t->present()) t->Fill(random);
    const double beta = random() % 2 ? 1 : random() % 3 * 0.5, alpha = random() % 3 ? 1 : 0.25;
    const Activation activation = static_cast<Activation>(random() % 2 ? 0 : random() % 4);
    if (random() % 3 == 0) b.set_content(round + 1);
    SCOPED_TRACE(::testing::Message() << "round " << round << " m " << m << " n " << n << " k " << k
                                      << " rank " << out_sizes.size());
    const std::vector<std::byte> before = out.bytes();
    for (int again = 0; again < 3; ++again) {
      machine.Execute(out, a, b, c, beta, alpha, activation);
      ExpectProduct(out, a, b, c, beta, alpha, activation);
      if (HasFailure()) return;
    }
    HostTensor untouched = out;  // the gaps between elements of out still hold what they held
    untouched.bytes() = before;
    out.ForEach([&](const auto& index) { untouched.Set(index, out.At(index)); });
    EXPECT_EQ(untouched.bytes(), out.bytes());
  }
}

TEST_P(MatmulOfType, NumberOfWorkersDoesNotChangeABit) {
  Random random(7);
  Machine one(1), four(4);
  const int64_t shapes[][4] = {
      {1, 300, 400, 200}, {1, 16, 1000, 384}, {1, 1, 3000, 500}, {40, 64, 64, 32}, {3, 700, 130, 130}};
  for (const auto& [batch, m, n, k] : shapes) {
    HostTensor a = HostTensor::Dense(GetParam(), {batch, m, k}),
               b = HostTensor::Laid(GetParam(), {batch, k, n}, {0, 2, 1}, 0);
    HostTensor c = HostTensor::Dense(GetParam(), {n});
    for (HostTensor* t : {&a, &b, &c}) t->Fill(random);
    b.set_content(m);
    for (int again = 0; again < 3; ++again) {
      HostTensor out1 = HostTensor::Dense(GetParam(), {batch, m, n}), out4 = out1;
      one.Execute(out1, a, b, c);
      four.Execute(out4, a, b, c);
      EXPECT_EQ(out1.bytes(), out4.bytes()) << m << " " << n << " " << k;
    }
  }
}

TEST_P(MatmulOfType, AddendMayBeTheOutput) {
  Random random(9);
  Machine machine(2);
  for (const bool transposed : {false, true}) {
    const std::vector<int> order = transposed ? std::vector<int>{1, 0} : std::vector<int>{0, 1};
    HostTensor a = HostTensor::Dense(GetParam(), {150, 40}), b = HostTensor::Dense(GetParam(), {40, 300});
    HostTensor out = HostTensor::Laid(GetParam(), {150, 300}, order, 0);
    for (HostTensor* t : {&a, &b, &out}) t->Fill(random);
    const HostTensor before = out;
    const Operand outputs[] = {out.operand()};
    const Operand inputs[] = {a.operand(), b.operand(), out.operand()};
    const ops::Number attributes[] = {ops::Number::Real(0.5), ops::Number::Real(2), ops::Number::Integer(0)};
    OpCall call;
    call.row = &ops::RowOf("addmm");
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    machine.launches.Clear();
    ASSERT_TRUE(
        machine.planner.Plan(
                           call, [&](size_t n) { return machine.device.Workspace(n); }, machine.launches)
            .ok());
    machine.device.Run(machine.launches);
    ExpectProduct(out, a, b, before, 0.5, 2, Activation::kNone);
  }
}

TEST_P(MatmulOfType, WeightsArePackedTheSecondTimeAndNeverStale) {
  if (GetParam() == DType::kFloat64) return;  // our own product packs as it goes
  Random random(11);
  Machine machine(2);
  HostTensor none;
  for (const int64_t m : {1, 16, 200}) {
    HostTensor a = HostTensor::Dense(GetParam(), {m, 384}),
               b = HostTensor::Laid(GetParam(), {384, 500}, {1, 0}, 0);
    HostTensor out = HostTensor::Dense(GetParam(), {m, 500});
    a.Fill(random);
    for (uint64_t content = 1; content <= 3; ++content) {
      b.Fill(random);
      b.set_content(m * 10 + content);
      const size_t before = machine.planner.packed_weights().bytes();
      machine.Execute(out, a, b, none);
      EXPECT_LE(machine.planner.packed_weights().bytes(), before) << "packed at first sight";
      for (int again = 0; again < 3; ++again) {
        machine.Execute(out, a, b, none);
        ExpectProduct(out, a, b, none, 1, 1, Activation::kNone);
        EXPECT_GT(machine.planner.packed_weights().bytes(), 0u);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulOfType,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                           DType::kFloat16),
                         [](const auto& param) { return std::string(ops::Info(param.param).name); });

TEST(OnednnMatmul, PackedBytesStayWithinTheLimit) {
  Random random(13);
  constexpr size_t kLimit = size_t{1} << 20;
  Machine machine(1, kLimit);
  std::vector<HostTensor> weights;
  HostTensor a = HostTensor::Dense(DType::kFloat32, {4, 256}),
             out = HostTensor::Dense(DType::kFloat32, {4, 256}), none;
  a.Fill(random);
  for (uint64_t i = 0; i < 8; ++i) {
    weights.push_back(HostTensor::Dense(DType::kFloat32, {256, 256}));
    weights.back().Fill(random);
    weights.back().set_content(i + 1);
  }
  for (int again = 0; again < 3; ++again) {
    for (HostTensor& w : weights) {
      machine.Execute(out, a, w, none);
      ExpectProduct(out, a, w, none, 1, 1, Activation::kNone);
      EXPECT_LE(machine.planner.packed_weights().bytes(), kLimit);
    }
  }
  EXPECT_EQ(machine.planner.packed_weights().bytes(), kLimit) << "four of the eight stay packed";
}

TEST(OnednnMatmul, NanInAnAddendWithoutWeightDoesNotCount) {
  Random random(15);
  Machine machine(1);
  HostTensor a = HostTensor::Dense(DType::kFloat32, {3, 4}), b = HostTensor::Dense(DType::kFloat32, {4, 5});
  HostTensor out = HostTensor::Dense(DType::kFloat32, {3, 5}), c = HostTensor::Dense(DType::kFloat32, {5});
  a.Fill(random);
  b.Fill(random);
  c.ForEach([&](const auto& i) { c.Set(i, NAN); });
  machine.Execute(out, a, b, c, 0);
  ExpectProduct(out, a, b, HostTensor(), 0, 1, Activation::kNone);
}

TEST(OnednnMatmul, MixedTypesAreRefusedByName) {
  Machine machine(1);
  HostTensor a = HostTensor::Dense(DType::kFloat32, {3, 4}), b = HostTensor::Dense(DType::kFloat64, {4, 5});
  HostTensor out = HostTensor::Dense(DType::kFloat32, {3, 5}), none;
  const absl::Status status = machine.Plan(out, a, b, none, 1, 1, Activation::kNone);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("float64"), std::string::npos);
}

TEST(OnednnMatmul, MoreShapesThanPlansStillWork) {
  Random random(17);
  Machine machine(2);
  HostTensor none;
  int64_t shapes = 0;
  for (int64_t m = 1; m <= 70; ++m) {
    for (int64_t n = 1; n <= 70; ++n) {
      HostTensor a = HostTensor::Dense(DType::kFloat32, {m, 2}),
                 b = HostTensor::Dense(DType::kFloat32, {2, n});
      HostTensor out = HostTensor::Dense(DType::kFloat32, {m, n});
      ASSERT_TRUE(machine.Plan(out, a, b, none, 1, 1, Activation::kNone).ok());
      if (++shapes <= 4200) continue;  // beyond what is kept
      a.Fill(random);
      b.Fill(random);
      machine.device.Run(machine.launches);
      ExpectProduct(out, a, b, none, 1, 1, Activation::kNone);
    }
  }
}

TEST(Simd, EveryInstructionSetMultipliesAlike) {
  Random random(19);
  int count = 0;
  const simd::Functions* const* supported = simd::Supported(&count);
  ASSERT_GE(count, 1);
  HostTensor a = HostTensor::Dense(DType::kFloat64, {50, 300}),
             b = HostTensor::Dense(DType::kFloat64, {300, 70});
  a.Fill(random);
  b.Fill(random);
  for (int i = 0; i < count; ++i) {
    simd::Product product;
    product.wide = true;
    product.m = 50;
    product.n = 70;
    product.k = 300;
    product.a = {a.operand().data, DType::kFloat64, 300, 1};
    product.b = {b.operand().data, DType::kFloat64, 70, 1};
    std::unique_ptr<std::byte, decltype(&std::free)> memory(
        static_cast<std::byte*>(
            std::aligned_alloc(64, simd::Product::kAccBytes + simd::Product::kScratchBytes)),
        &std::free);
    product.acc = memory.get();
    product.scratch = memory.get() + simd::Product::kAccBytes;
    supported[i]->multiply(product);
    HostTensor out = HostTensor::Dense(DType::kFloat64, {50, 70});
    simd::Epilogue e;
    e.wide = true;
    e.m = 50;
    e.n = 70;
    e.acc = product.acc;
    e.leading = simd::Product::kLeading;
    e.out = out.operand().data;
    e.out_dtype = DType::kFloat64;
    e.out_row = 70;
    e.out_column = 1;
    supported[i]->finish(e);
    SCOPED_TRACE(supported[i]->isa);
    ExpectProduct(out, a, b, HostTensor(), 1, 1, Activation::kNone);
  }
}

}  // namespace
}  // namespace xpud::kernels::onednn
