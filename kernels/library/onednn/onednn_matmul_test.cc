#include "kernels/library/onednn/onednn_matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/library/onednn/primitive.h"
#include "kernels/library/simd/simd.h"
#include "kernels/library/testing/host_device.h"
#include "kernels/library/testing/host_tensor.h"
#include "kernels/library/testing/product.h"

namespace xpud::kernels::onednn {
namespace {

using ops::Activation;
using ops::DType;
using testing::ExpectProduct;
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
    return device.Plan(planner, call, launches);
  }
  void Execute(HostTensor& out, HostTensor& a, HostTensor& b, HostTensor& c, double beta = 1,
               double alpha = 1, Activation activation = Activation::kNone) {
    const absl::Status status = Plan(out, a, b, c, beta, alpha, activation);
    ASSERT_TRUE(status.ok()) << status;
    device.Run(launches);
  }
};

class MatmulOfType : public ::testing::TestWithParam<DType> {};

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

TEST_P(MatmulOfType, ActivationsKeepNanAndInfinity) {
  using At = std::array<int64_t, 2>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Random random(3);
  Machine machine(2);
  for (const auto& [m, n] : std::initializer_list<At>{{1, 40}, {3, 40}, {300, 520}}) {
    HostTensor a = HostTensor::Dense(GetParam(), {m, 64}), b = HostTensor::Dense(GetParam(), {64, n}), none;
    b.Fill(random);
    a.ForEach([&](const auto& index) { a.Set(index, 1); });
    b.Set(At{0, 0}, std::nan(""));
    b.Set(At{0, 1}, kInfinity);
    b.Set(At{0, 2}, -kInfinity);
    b.set_content(static_cast<uint64_t>(m));
    for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh}) {
      for (int again = 0; again < 3; ++again) {
        HostTensor out = HostTensor::Dense(GetParam(), {m, n});
        machine.Execute(out, a, b, none, 1, 1, activation);
        for (const int64_t row : {int64_t{0}, m - 1}) {
          EXPECT_TRUE(std::isnan(out.At(At{row, 0})));
          EXPECT_EQ(out.At(At{row, 1}), kInfinity);
          if (activation == Activation::kRelu) EXPECT_EQ(out.At(At{row, 2}), 0);
        }
      }
    }
  }
}

TEST_P(MatmulOfType, WeightsArePackedTheSecondTimeAndNeverStale) {
  if (GetParam() == DType::kFloat64) return;  // our own product packs during the product
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

// A short product shares the work of packing its weight with those that follow, so that none takes long.
TEST_P(MatmulOfType, PackingIsSpreadOverShortProducts) {
  if (GetParam() == DType::kFloat64) return;
  Random random(12);
  Machine machine(2);
  HostTensor none;
  for (const int64_t m : {16, 256, 600}) {
    HostTensor a = HostTensor::Dense(GetParam(), {m, 1024}),
               b = HostTensor::Laid(GetParam(), {1024, 2048}, {1, 0}, 0);
    HostTensor out = HostTensor::Dense(GetParam(), {m, 2048});
    a.Fill(random);
    b.Fill(random);
    b.set_content(static_cast<uint64_t>(m));
    std::vector<uint32_t> packed;  // groups, of each use
    for (int use = 0; use < 20; ++use) {
      ASSERT_TRUE(machine.Plan(out, a, b, none, 1, 1, Activation::kNone).ok());
      uint32_t groups = 0;
      for (size_t i = 0; i < machine.launches.size(); ++i)
        if (machine.launches[i].kernel().entry == "pack") groups += machine.launches[i].groups()[0];
      packed.push_back(groups);
      machine.device.Run(machine.launches);
      if (m == 16 && use % 9 == 0) ExpectProduct(out, a, b, none, 1, 1, Activation::kNone);
    }
    const uint32_t all = std::accumulate(packed.begin(), packed.end(), uint32_t{0});
    const uint32_t parts = static_cast<uint32_t>(std::clamp<int64_t>(512 / m, 1, 4));
    EXPECT_EQ(packed[0], 0u);
    EXPECT_GE(all, parts);
    for (const uint32_t groups : packed) EXPECT_LE(groups, (all + parts - 1) / parts) << m;
    EXPECT_EQ(packed.back(), 0u) << "all is packed";
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

// Panels are what oneDNN's own reorder makes of the matrix, for each instruction set.
TEST(Simd, EveryInstructionSetPacksLikeOnednn) {
  Random random(20);
  int count = 0;
  const simd::Functions* const* supported = simd::Supported(&count);
  for (const DType type : {DType::kFloat32, DType::kBFloat16})
    for (const auto& [k, n] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 16}, {31, 40}, {64, 64}, {100, 130}, {257, 47}})
      for (const bool transposed : {false, true}) {
        HostTensor b =
            transposed ? HostTensor::Laid(type, {k, n}, {1, 0}, 0) : HostTensor::Dense(type, {k, n});
        b.Fill(random);
        const Operand source = b.operand();
        const PanelLayout layout = PanelLayout::Of(k, n, type);
        std::vector<std::byte> expected(layout.bytes()), packed(layout.bytes());
        for (int64_t panel = 0; panel < layout.panels(); ++panel) {
          const int64_t first = panel * layout.width, columns = std::min(layout.width, n - first);
          const auto element = static_cast<int64_t>(ops::SizeOf(type));
          std::byte* const data = static_cast<std::byte*>(source.data) + first * source.strides[1] * element;
          const auto offset = static_cast<int64_t>(layout.panel_bytes()) * panel;
          dnnl::memory from(
              {{k, columns}, TypeOf(type), dnnl::memory::dims{source.strides[0], source.strides[1]}},
              CpuEngine(), data);
          dnnl::memory to({{k, columns}, TypeOf(type), layout.tag}, CpuEngine(), expected.data() + offset);
          dnnl::reorder(from, to).execute(ThreadStream(), from, to);
        }
        for (int i = 0; i < count; ++i) {
          std::ranges::fill(packed, std::byte{0xab});
          for (int64_t panel = 0; panel < layout.panels(); ++panel) {
            const int64_t first = panel * layout.width;
            simd::Panel block;
            block.source = {static_cast<std::byte*>(source.data) +
                                first * source.strides[1] * static_cast<int64_t>(ops::SizeOf(type)),
                            type, source.strides[0], source.strides[1]};
            block.rows = k;
            block.columns = std::min(layout.width, n - first);
            block.target_rows = layout.column_elements();
            block.width = layout.width;
            block.target = packed.data() + static_cast<int64_t>(layout.panel_bytes()) * panel;
            supported[i]->pack(block);
          }
          EXPECT_EQ(packed, expected) << supported[i]->isa << " " << k << " " << n << " " << transposed;
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
