// Embedding, index_select and gather, compared with a plain loop: over layouts, dimensions, element and index
// types, with valid and invalid indices. Also the code of all kernels that they need on GPUs.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/families/gather.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Sizes = std::vector<int64_t>;

Sizes Dense(const Sizes& sizes) {
  Sizes strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0; step *= std::max<int64_t>(sizes[d], 1)) strides[d] = step;
  return strides;
}

struct Shape {
  const char* name;
  int64_t dim;
  Sizes a, a_strides, index, index_strides, out, out_strides;  // empty strides: row-major
};

const Shape kEmbeddings[] = {
    {"sentence", 0, {50, 384}, {}, {9}, {}, {9, 384}, {}},
    {"odd rows", 0, {7, 133}, {}, {20}, {}, {20, 133}, {}},
    {"rows of one", 0, {7, 1}, {}, {20}, {}, {20, 1}, {}},
    {"gaps", 0, {7, 40}, {64, 1}, {20}, {3}, {20, 40}, {50, 1}},
    {"transposed weight", 0, {30, 17}, {1, 30}, {20}, {}, {20, 17}, {}},
    {"transposed output", 0, {30, 17}, {}, {20}, {}, {20, 17}, {1, 20}},
    {"the same row", 0, {30, 17}, {}, {20}, {0}, {20, 17}, {}},
    {"expanded weight", 0, {30, 17}, {0, 1}, {20}, {}, {20, 17}, {}},
    {"one index", 0, {30, 17}, {}, {1}, {}, {1, 17}, {}},
    {"no indices", 0, {30, 17}, {}, {0}, {}, {0, 17}, {}},
    {"no columns", 0, {30, 0}, {}, {4}, {}, {4, 0}, {}},
    {"large, cut into groups", 0, {1000, 384}, {}, {5000}, {}, {5000, 384}, {}},
    {"long rows, cut into groups", 0, {3, 600007}, {}, {4}, {}, {4, 600007}, {}},
};

const Shape kGathers[] = {
    {"select, rank 1", 0, {100}, {}, {40}, {}, {40}, {}},
    {"select, rank 1, strided", 0, {100}, {2}, {40}, {3}, {40}, {5}},
    {"select of a scalar", 0, {}, {}, {1}, {}, {}, {}},
    {"gather of scalars", 0, {}, {}, {}, {}, {}, {}},
    {"select dim 0", 0, {10, 6, 20}, {}, {15}, {}, {15, 6, 20}, {}},
    {"select dim 1", 1, {10, 6, 20}, {}, {15}, {}, {10, 15, 20}, {}},
    {"select dim 2", 2, {10, 6, 20}, {}, {15}, {}, {10, 6, 15}, {}},
    {"select, permuted", 1, {10, 6, 20}, {6, 1, 60}, {15}, {2}, {10, 15, 20}, {1, 200, 10}},
    {"select, expanded", 1, {10, 6, 20}, {0, 1, 0}, {15}, {}, {10, 15, 20}, {}},
    {"select, rank 4", 2, {3, 4, 5, 6}, {}, {7}, {}, {3, 4, 7, 6}, {}},
    {"select, none", 1, {10, 6}, {}, {0}, {}, {10, 0}, {}},
    {"gather dim 0", 0, {30, 17}, {}, {20, 17}, {}, {20, 17}, {}},
    {"gather dim 1", 1, {30, 17}, {}, {30, 40}, {}, {30, 40}, {}},
    {"gather, one a row", 1, {30, 17}, {}, {30, 1}, {}, {30, 1}, {}},
    {"gather, smaller index", 0, {30, 17}, {}, {20, 9}, {}, {20, 9}, {}},
    {"gather, expanded index", 0, {30, 17}, {}, {20, 17}, {1, 0}, {20, 17}, {}},
    {"gather, expanded index, dim 1", 1, {30, 17, 8}, {}, {30, 9, 8}, {9, 1, 0}, {30, 9, 8}, {}},
    {"gather, transposed", 1, {30, 17}, {1, 30}, {30, 40}, {1, 30}, {30, 40}, {1, 30}},
    {"gather, gaps", 1, {30, 17}, {60, 3}, {30, 40}, {90, 2}, {30, 40}, {43, 1}},
    {"gather, rank 4", 1, {3, 4, 5, 6}, {}, {3, 7, 5, 6}, {}, {3, 7, 5, 6}, {}},
    {"gather, rank 8",
     4,
     {2, 3, 2, 1, 2, 3, 2, 2},
     {1, 2, 6, 12, 12, 24, 72, 144},
     {2, 3, 2, 1, 5, 3, 2, 2},
     {},
     {2, 3, 2, 1, 5, 3, 2, 2},
     {}},
    {"gather, none", 1, {30, 17}, {}, {30, 0}, {}, {30, 0}, {}},
    {"gather, large, cut into groups", 1, {700, 300}, {}, {700, 500}, {}, {700, 500}, {}},
};

int64_t NumelOf(const Sizes& sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

class GatherTest : public DeviceTest {
 protected:
  static TestTensor Tensor(DType type, const Sizes& sizes, const Sizes& strides) {
    return TestTensor(type, sizes, strides.empty() ? Dense(sizes) : strides);
  }

  // Fills valid index values, and one of `invalid` for each third element.
  void FillIndex(TestTensor& index, int64_t limit, const std::vector<int64_t>& invalid) {
    for (int64_t i = 0; i < index.numel(); ++i) {
      const bool bad = limit == 0 || (!invalid.empty() && random_() % 3 == 0);
      index.Set(i, static_cast<Exact>(bad ? invalid[random_() % invalid.size()]
                                          : static_cast<int64_t>(random_() % static_cast<uint64_t>(limit))));
    }
  }

  // Runs the op and compares all elements. Those of an invalid index must keep their values.
  void Check(const char* op, const Shape& shape, DType type, DType index_type,
             const std::vector<int64_t>& invalid = {}) {
    // Large shapes test the cuts, which hardly depend on the types.
    if (NumelOf(shape.out) > 100'000 && (type != DType::kFloat32 || index_type != DType::kInt64)) return;
    const ops::Row& row = ops::RowOf(op);
    const std::string what = absl::StrCat(op, " ", std::string(ops::Info(type).name), " ", shape.name);
    const bool selects =
        shape.index.size() == 1 && (row.family == ops::Family::kEmbedding || shape.a.size() != 1);
    const size_t dim = static_cast<size_t>(shape.dim);
    const int64_t limit = shape.a.empty() ? 1 : shape.a[dim];
    TestTensor a = Tensor(type, shape.a, shape.a_strides);
    TestTensor index = Tensor(index_type, shape.index, shape.index_strides);
    TestTensor out = Tensor(type, shape.out, shape.out_strides);
    Randomise(a, random_);
    Randomise(out, random_);
    FillIndex(index, limit, invalid);
    const TestTensor before = out;

    uint64_t error = 0;
    const Operand output = out.operand(), inputs[] = {a.operand(), index.operand()};
    const ops::Number attribute = ops::Number::Integer(shape.dim);
    const size_t attributes = row.family == ops::Family::kGather ? 1 : 0;
    const absl::Status status = device_.Run(*library_, {.row = &row,
                                                        .compute = type,
                                                        .outputs = {&output, 1},
                                                        .inputs = inputs,
                                                        .attributes = {&attribute, attributes},
                                                        .error_word = &error});
    ASSERT_TRUE(status.ok()) << what << ": " << status;
    ASSERT_TRUE(out.MarginsIntact()) << what;
    std::vector<uint64_t> reports;  // that the error word may hold
    for (int64_t i = 0; i < out.numel(); ++i) {
      Sizes at(shape.out.size());
      int64_t rest = i;
      for (size_t d = at.size(); d-- > 0; rest /= shape.out[d]) at[d] = rest % shape.out[d];
      const Exact exact = selects ? index.At(at.empty() ? 0 : at[dim]) : index.AtIndex(at);
      const auto value = static_cast<int64_t>(exact);
      if (value < 0 || value >= limit) {
        reports.push_back(static_cast<uint64_t>(value) << 8 |
                          static_cast<uint64_t>(DeviceError::kIndexOutOfRange));
        ASSERT_EQ(out.At(i), before.At(i)) << what << ": an invalid index wrote element " << i;
        continue;
      }
      if (!at.empty()) at[dim] = value;
      ASSERT_EQ(out.At(i), a.AtIndex(at)) << what << " element " << i;
    }
    if (reports.empty()) {
      EXPECT_EQ(error, 0u) << what;
    } else {
      EXPECT_THAT(reports, ::testing::Contains(error)) << what;
    }
  }

  std::mt19937_64 random_{4321};
};

TEST_F(GatherTest, EmbeddingAgreesForEveryLayoutAndSize) {
  for (const Shape& shape : kEmbeddings) {
    for (const DType type : {DType::kUInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      for (const DType index : {DType::kInt32, DType::kInt64}) Check("embedding", shape, type, index);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GatherTest, IndexSelectAndGatherAgreeForEveryLayoutAndSize) {
  for (const Shape& shape : kGathers) {
    for (const DType type : {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
      for (const DType index : {DType::kInt32, DType::kInt64}) Check("gather", shape, type, index);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GatherTest, EveryElementTypeIsMovedUnchanged) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    Check("embedding", kEmbeddings[1], static_cast<DType>(t), DType::kInt64);
    Check("gather", kGathers[12], static_cast<DType>(t), DType::kInt64);
  }
}

TEST_F(GatherTest, InvalidIndexIsReportedAndWritesNothing) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
  for (const DType type : {DType::kUInt8, DType::kInt16, DType::kFloat32, DType::kFloat64}) {
    for (const auto& [op, shapes] : {std::pair{"embedding", std::span<const Shape>(kEmbeddings)},
                                     {"gather", std::span<const Shape>(kGathers)}}) {
      for (const Shape& shape : shapes) {
        const int64_t limit = shape.a.empty() ? 1 : shape.a[static_cast<size_t>(shape.dim)];
        // The last value is valid if only its lower 32 bits are checked.
        Check(op, shape, type, DType::kInt64, {-1, -limit, limit, limit + 1, kMax, kMin, int64_t{1} << 32});
        Check(op, shape, type, DType::kInt32, {-1, -limit, limit, limit + 1, kMax >> 32, kMin >> 32});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GatherTest, EmptySourceIsNeverRead) {
  const Shape embedding = {"empty weight", 0, {0, 384}, {}, {5}, {}, {5, 384}, {}};
  const Shape gather = {"empty source", 1, {6, 0}, {}, {6, 3}, {}, {6, 3}, {}};
  Check("embedding", embedding, DType::kFloat32, DType::kInt64, {0, 1});
  Check("gather", gather, DType::kFloat32, DType::kInt64, {0, 1});
}

TEST_F(GatherTest, LargeWorkIsCutAndASentenceIsNot) {
  Check("embedding", kEmbeddings[0], DType::kFloat32, DType::kInt64);
  if (device_.options().target == Target::kHost) EXPECT_EQ(device_.groups(), 1u);
  for (const size_t large : {11, 12}) {
    Check("embedding", kEmbeddings[large], DType::kFloat32, DType::kInt64);
    EXPECT_GT(device_.groups(), 4u);
  }
}

TEST_F(GatherTest, GpuThreadsMoveUpTo16AlignedBytesOfARow) {
  KernelLibrary::Options options;
  options.target = Target::kNvptx;
  const auto library = *KernelLibrary::Create(options);
  struct Case {
    DType type;
    int64_t columns, row_stride, elements_moved_as_one, elements_a_thread;
  };
  for (const Case& c : {Case{DType::kBFloat16, 384, 384, 4, 8},
                        {DType::kBFloat16, 386, 386, 2, 2},
                        {DType::kBFloat16, 133, 133, 1, 1},
                        {DType::kBFloat16, 384, 385, 1, 1},
                        {DType::kUInt8, 384, 384, 8, 16},
                        {DType::kFloat32, 384, 384, 2, 4},
                        {DType::kFloat32, 386, 386, 2, 2},
                        {DType::kFloat64, 384, 384, 1, 2}}) {
    TestTensor a(c.type, {20, c.columns}, {c.row_stride, 1}), index(DType::kInt64, {9}),
        out(c.type, {9, c.columns});
    const Operand output = out.operand(), inputs[] = {a.operand(), index.operand()};
    ASSERT_EQ((reinterpret_cast<uintptr_t>(output.data) | reinterpret_cast<uintptr_t>(inputs[0].data)) % 16,
              0u);
    uint64_t error = 0;
    LaunchList launches;
    ASSERT_TRUE(device_
                    .Plan(*library,
                          {.row = &ops::RowOf("embedding"),
                           .compute = c.type,
                           .outputs = {&output, 1},
                           .inputs = inputs,
                           .attributes = {},
                           .error_word = &error},
                          launches)
                    .ok());
    ASSERT_EQ(launches.size(), 1u);
    const int64_t threads = 9 * c.columns / c.elements_a_thread;
    EXPECT_EQ(launches[0].groups()[0], (threads + kGpuLanes - 1) / kGpuLanes) << c.columns;
    int64_t stride;
    std::memcpy(&stride, launches[0].arguments()[5], 8);
    EXPECT_EQ(stride, c.row_stride / c.elements_moved_as_one) << c.columns;
  }
}

TEST_F(GatherTest, ScalarWithoutAnIndexIsRefused) {
  TestTensor a(DType::kFloat32, {}), index(DType::kInt64, {0}), out(DType::kFloat32, {});
  const Operand output = out.operand(), inputs[] = {a.operand(), index.operand()};
  const ops::Number dim = ops::Number::Integer(0);
  LaunchList launches;
  EXPECT_EQ(device_
                .Plan(*library_,
                      {.row = &ops::RowOf("gather"),
                       .compute = DType::kFloat32,
                       .outputs = {&output, 1},
                       .inputs = inputs,
                       .attributes = {&dim, 1}},
                      launches)
                .code(),
            absl::StatusCode::kInvalidArgument);
}

// Every kernel of up to three dimensions.
std::vector<GatherKey> GpuKeys() {
  std::vector<GatherKey> keys;
  for (const Access index : {Access::kContiguous, Access::kBroadcast, Access::kStrided}) {
    for (const Access a : {Access::kContiguous, Access::kBroadcast, Access::kStrided}) {
      for (const DType element : {DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
        GatherKey key;
        key.element = element;
        key.index = ops::SizeOf(element) % 4 == 0 ? DType::kInt64 : DType::kInt32;
        key.rank = 1 + static_cast<int>(keys.size()) % 3;
        key.narrow = keys.size() % 4 >= 2;
        key.access = {Access::kContiguous, index, a};
        keys.push_back(key);
      }
    }
  }
  return keys;
}

TEST(GatherCode, PackedKeyKeepsEveryField) {
  for (const GatherKey& key : GpuKeys()) {
    const KernelKey packed = GatherSkeleton::Pack(key);
    EXPECT_EQ(GatherSkeleton::Pack(UnpackKey<GatherKey>(packed)), packed);
  }
}

TEST(GatherCode, CompilesToPtx) {
  for (const GatherKey& key : GpuKeys()) {
    const absl::StatusOr<std::string> code =
        KernelCompiler::Compile(Target::kNvptx, GatherSkeleton(), GatherSkeleton::Pack(key));
    ASSERT_TRUE(code.ok()) << code.status();
    EXPECT_NE(code->find(".entry gather("), std::string::npos);
  }
}

TEST(GatherCode, CompilesToValidSpirv) {
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("gather_", getpid(), ".spv");
  for (const GatherKey& key : GpuKeys()) {
    const absl::StatusOr<std::string> code =
        KernelCompiler::Compile(Target::kSpirv, GatherSkeleton(), GatherSkeleton::Pack(key));
    ASSERT_TRUE(code.ok()) << code.status();
    std::ofstream(file, std::ios::binary) << *code;
    EXPECT_EQ(std::system(absl::StrCat("spirv-val --target-env opencl2.2 ", file.string()).c_str()), 0)
        << "gather of rank " << key.rank;
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace xpud::kernels
