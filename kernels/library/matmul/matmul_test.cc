// kMatmul on all devices that support it: the CPU by oneDNN, an NVIDIA GPU by cuBLASLt, and by our own
// kernels alone.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "kernels/library/cublaslt/cublaslt_matmul.h"
#include "kernels/library/testing/cuda_device.h"
#include "kernels/library/testing/host_device.h"
#include "kernels/library/testing/host_tensor.h"
#include "kernels/library/testing/product.h"

namespace xpud::kernels {
namespace {

using ops::Activation;
using ops::DType;
using testing::ExpectProduct;
using testing::HostTensor;
using Random = std::mt19937_64;

enum class Way { kOnednn, kOnednnElsewhere, kCublaslt, kCublasltAsked, kCublasltInPieces, kOwnOnGpu };

class MatmulOfType : public ::testing::TestWithParam<std::tuple<Way, DType>> {
 protected:
  void SetUp() override {
    const Way way = std::get<0>(GetParam());
    if (way == Way::kOnednn || way == Way::kOnednnElsewhere) {
      device_ = std::make_unique<testing::HostDevice>(2);
      planner_ = CreateOnednnMatmul(*device_, 2, way == Way::kOnednnElsewhere);
      return;
    }
    auto gpu = testing::CudaDevice::Create();
    if (!gpu.ok()) GTEST_SKIP() << gpu.status();
    const auto run = [raw = gpu->get()](const Launch& launch) { return raw->RunHostKernel(launch); };
    device_ = *std::move(gpu);
    const auto api = cublaslt::Api::Get();
    if (way != Way::kOwnOnGpu && !api.ok()) GTEST_SKIP() << api.status();
    using cublaslt::CublasltMatmul;
    matmul::MatmulRates rates;
    if (way == Way::kCublasltInPieces) rates = {.float_operations = 1, .half_operations = 1};  // all are long
    planner_ =
        way == Way::kOwnOnGpu
            ? std::make_unique<CublasltMatmul>(*device_, CublasltMatmul::Library::kNone)
            : CreateCublasltMatmul(*device_, way == Way::kCublasltAsked ? run : HostKernelRunner(), rates);
  }
  DType type() const { return std::get<1>(GetParam()); }

  absl::Status Plan(HostTensor& out, HostTensor& a, HostTensor& b, HostTensor& c, double beta = 1,
                    double alpha = 1, Activation activation = Activation::kNone) {
    const Operand outputs[] = {device_->Place(out)};
    const Operand inputs[] = {device_->Place(a), device_->Place(b), device_->Place(c)};
    const ops::Number attributes[] = {ops::Number::Real(beta), ops::Number::Real(alpha),
                                      ops::Number::Integer(static_cast<int64_t>(activation))};
    OpCall call;
    call.row = &ops::RowOf("addmm");
    call.compute = inputs[0].dtype;
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    return device_->Plan(*planner_, call, launches_);
  }
  void Execute(HostTensor& out, HostTensor& a, HostTensor& b, HostTensor& c, double beta = 1,
               double alpha = 1, Activation activation = Activation::kNone) {
    const absl::Status status = Plan(out, a, b, c, beta, alpha, activation);
    ASSERT_TRUE(status.ok()) << status;
    device_->Run(launches_);
  }

  std::unique_ptr<testing::Device> device_;
  std::unique_ptr<Planner> planner_;
  LaunchList launches_;
};

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

TEST_P(MatmulOfType, EveryLayoutAndEpilogueAgreesWithTheDefinition) {
  Random random(static_cast<int>(type()));
  for (int round = 0; round < 160; ++round) {
    const int64_t m = RandomSize(random), n = RandomSize(random), k = RandomSize(random);
    std::vector<int64_t> out_sizes = {m, n}, a_sizes = {m, k}, b_sizes = {k, n};
    if (random() % 2 == 0) {
      const int64_t batch = 1 + random() % 5;
      for (auto* sizes : {&out_sizes, &a_sizes, &b_sizes}) sizes->insert(sizes->begin(), batch);
    }
    HostTensor a = RandomLayout(random, type(), a_sizes, false),
               b = RandomLayout(random, type(), b_sizes, false);
    HostTensor out = RandomLayout(random, type(), out_sizes, true),
               c = RandomAddend(random, type(), out_sizes);
    for (HostTensor* t : {&a, &b, &c})
      if (t->present()) t->Fill(random);
    const double beta = random() % 2 ? 1 : random() % 3 * 0.5, alpha = random() % 3 ? 1 : 0.25;
    const Activation activation = static_cast<Activation>(random() % 2 ? 0 : random() % 4);
    if (random() % 3 == 0) b.set_content(round + 1);
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << " m " << m << " n " << n << " k " << k << " rank "
                 << out_sizes.size() << " alpha " << alpha << " beta " << beta << " activation "
                 << static_cast<int>(activation) << " c of rank " << (c.present() ? c.shape().rank : -1));
    const std::vector<std::byte> before = out.bytes();
    for (int again = 0; again < 3; ++again) {
      Execute(out, a, b, c, beta, alpha, activation);
      ExpectProduct(out, a, b, c, beta, alpha, activation);
      if (HasFailure()) return;
    }
    HostTensor untouched = out;  // the gaps between elements of out are unchanged
    untouched.bytes() = before;
    out.ForEach([&](const auto& index) { untouched.Set(index, out.At(index)); });
    EXPECT_EQ(untouched.bytes(), out.bytes());
  }
}

TEST_P(MatmulOfType, AddendMayBeTheOutput) {
  Random random(9);
  for (const bool transposed : {false, true}) {
    const std::vector<int> order = transposed ? std::vector<int>{1, 0} : std::vector<int>{0, 1};
    HostTensor a = HostTensor::Dense(type(), {150, 40}), b = HostTensor::Dense(type(), {40, 300});
    HostTensor out = HostTensor::Laid(type(), {150, 300}, order, 0);
    for (HostTensor* t : {&a, &b, &out}) t->Fill(random);
    const HostTensor before = out;
    Execute(out, a, b, out, 0.5, 2);
    ExpectProduct(out, a, b, before, 0.5, 2, Activation::kNone);
  }
}

// A single row is also the bias of its row.
TEST_P(MatmulOfType, AnAddedRowMayBeTheOutput) {
  Random random(6);
  for (const int64_t k : {7, 48}) {
    HostTensor a = HostTensor::Dense(type(), {1, k}), b = HostTensor::Laid(type(), {k, 28}, {1, 0}, 0);
    HostTensor out = HostTensor::Dense(type(), {1, 28});
    a.Fill(random);
    b.Fill(random);
    b.set_content(1);
    for (int use = 0; use < 8; ++use) {  // after some of them, b is packed
      out.Fill(random);
      const HostTensor before = out;
      Execute(out, a, b, out);
      ExpectProduct(out, a, b, before, 1, 1, Activation::kNone);
    }
  }
}

TEST_P(MatmulOfType, NanInAnAddendWithoutWeightDoesNotCount) {
  Random random(15);
  HostTensor a = HostTensor::Dense(type(), {3, 4}), b = HostTensor::Dense(type(), {4, 5});
  HostTensor out = HostTensor::Dense(type(), {3, 5}), c = HostTensor::Dense(type(), {5});
  a.Fill(random);
  b.Fill(random);
  c.ForEach([&](const auto& i) { c.Set(i, NAN); });
  Execute(out, a, b, c, 0);
  ExpectProduct(out, a, b, HostTensor(), 0, 1, Activation::kNone);
}

TEST_P(MatmulOfType, MixedTypesAreRefusedByName) {
  const DType other = type() == DType::kFloat64 ? DType::kFloat32 : DType::kFloat64;
  HostTensor a = HostTensor::Dense(type(), {3, 4}), b = HostTensor::Dense(other, {4, 5});
  HostTensor out = HostTensor::Dense(type(), {3, 5}), none;
  const absl::Status status = Plan(out, a, b, none);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("float64"), absl::string_view::npos);
}

// Sizes for which a library cuts k, uses its widest tiles, and many small matrices.
TEST_P(MatmulOfType, LargeShapesAgreeWithTheDefinition) {
  Random random(21);
  const int64_t shapes[][4] = {{1, 128, 384, 1536}, {1, 512, 520, 300}, {300, 20, 24, 32}, {1, 8, 64, 6000}};
  for (const auto& [batch, m, n, k] : shapes) {
    HostTensor a = HostTensor::Dense(type(), {batch, m, k}),
               b = HostTensor::Laid(type(), {batch, k, n}, {0, 2, 1}, 0);
    HostTensor c = HostTensor::Dense(type(), {n}), out = HostTensor::Dense(type(), {batch, m, n});
    for (HostTensor* t : {&a, &b, &c}) t->Fill(random);
    SCOPED_TRACE(::testing::Message() << batch << " of " << m << " x " << n << " x " << k);
    Execute(out, a, b, c);
    ExpectProduct(out, a, b, c, 1, 1, Activation::kNone);
  }
}

TEST_P(MatmulOfType, MoreShapesThanPlansStillWork) {
  if (type() != DType::kFloat32) GTEST_SKIP() << "plans are kept alike for every type: once is enough";
  if (std::get<0>(GetParam()) == Way::kOwnOnGpu) GTEST_SKIP() << "our own kernels keep no plans";
  Random random(17);
  HostTensor none;
  int64_t shapes = 0;
  for (int64_t m = 1; m <= 70; ++m) {
    for (int64_t n = 1; n <= 70; ++n) {
      HostTensor a = HostTensor::Dense(type(), {m, 2}), b = HostTensor::Dense(type(), {2, n});
      HostTensor out = HostTensor::Dense(type(), {m, n});
      const bool beyond = ++shapes > 4200;  // more than the limit
      if (beyond) a.Fill(random), b.Fill(random);
      ASSERT_TRUE(Plan(out, a, b, none).ok());
      if (!beyond) launches_.Clear();
      device_->Run(launches_);
      if (beyond) ExpectProduct(out, a, b, none, 1, 1, Activation::kNone);
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Way, DType>>& info) {
  constexpr const char* kNames[] = {"Onednn_",        "OnednnElsewhere_",  "Cublaslt_",
                                    "CublasltAsked_", "CublasltInPieces_", "OwnOnGpu_"};
  const auto [way, type] = info.param;
  return kNames[static_cast<int>(way)] + std::string(ops::Info(type).name);
}

INSTANTIATE_TEST_SUITE_P(Ways, MatmulOfType,
                         ::testing::Combine(::testing::Values(Way::kOnednn, Way::kOnednnElsewhere,
                                                              Way::kCublaslt, Way::kCublasltAsked,
                                                              Way::kCublasltInPieces, Way::kOwnOnGpu),
                                            ::testing::Values(DType::kFloat32, DType::kFloat64,
                                                              DType::kBFloat16, DType::kFloat16)),
                         NameOf);

}  // namespace
}  // namespace xpud::kernels
