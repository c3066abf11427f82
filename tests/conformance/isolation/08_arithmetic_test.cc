// Numbers whose sums and products overflow.
#include <limits>
#include <vector>

#include "proto/ops/family.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using ops::DType;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Arithmetic : public Isolation {
 protected:
  std::unique_ptr<HostileSession> Open() {
    auto session = std::make_unique<HostileSession>(socket());
    PutOperands(*session);
    EXPECT_TRUE(session->Settle().ok());
    return session;
  }
};

constexpr uint64_t kMax = ~uint64_t{0};
// Near the limits of 32, 56, 63 and 64 bits, in bytes and in elements.
constexpr uint64_t kEdges[] = {kOperandBytes + 1, (1ull << 31) - 1, 1ull << 31,       (1ull << 32) - 1,
                               1ull << 32,        (1ull << 32) + 1, 1ull << 40,       1ull << 54,
                               (1ull << 56) - 1,  1ull << 56,       (1ull << 56) + 1, 1ull << 60,
                               (1ull << 61) - 1,  1ull << 61,       (1ull << 62) - 1, 1ull << 62,
                               (1ull << 63) - 1,  1ull << 63,       (1ull << 63) + 1, kMax - kOperandBytes,
                               kMax - 4095,       kMax - 8,         kMax - 1,         kMax};

TEST_F(Arithmetic, OfCopiesNeitherWrapsNorLeavesItsBuffer) {
  auto session = Open();
  constexpr wire::Handle a = {1, 1}, b = {2, 1};
  for (const uint64_t edge : kEdges) {
    for (const auto& [offset, bytes] : std::initializer_list<std::pair<uint64_t, uint64_t>>{
             {edge, 8}, {edge, 0 - edge}, {edge, 8 - edge}, {edge, kOperandBytes - edge}}) {
      const bool inside = offset <= kOperandBytes && bytes <= kOperandBytes - offset;
      ASSERT_FALSE(inside);
      session->Put(Copy(a, offset, b, 0, bytes));
      EXPECT_THAT(TextOf(session->Settle()), HasSubstr("leaves its buffer")) << offset << " " << bytes;
      session->Put(Copy(a, 0, b, offset, bytes));
      EXPECT_THAT(TextOf(session->Settle()), HasSubstr("leaves its buffer")) << offset << " " << bytes;
      session->Put(UploadInline(a, offset, std::vector<std::byte>(8)));
      EXPECT_THAT(TextOf(session->Settle()), HasSubstr("leaves its buffer")) << offset;
      session->Put(Upload(a, offset, {0, 0, 0}, std::min<uint64_t>(bytes, 1 << 20)));
      EXPECT_THAT(TextOf(session->Settle()), HasSubstr("leaves its buffer")) << offset << " " << bytes;
      session->Put(Download(a, offset, {0, 0, 0}, std::min<uint64_t>(bytes, 1 << 20)));
      EXPECT_THAT(TextOf(session->Settle()), HasSubstr("leaves its buffer")) << offset << " " << bytes;
    }
  }
  session.reset();
  ExpectAsBefore();
}

TEST_F(Arithmetic, OfPlacesInStagingNeitherWrapsNorLeavesIt) {
  for (const uint64_t edge : kEdges) {
    if (edge <= transport::kStagingBytes) continue;
    for (const bool upload : {true, false}) {
      for (const auto& [offset, bytes] :
           std::initializer_list<std::pair<uint64_t, uint64_t>>{{edge, 8}, {edge, 0 - edge}, {8, edge}}) {
        auto session = std::make_unique<HostileSession>(socket());
        session->Put(Allocate({1, 1}, 64));
        if (upload) {
          session->Put(Upload({1, 1}, 0, {offset, 0, 0}, bytes));
        } else {
          session->Put(Download({1, 1}, 0, {offset, 0, 0}, bytes));
        }
        EXPECT_THAT(session->Fate(), HasSubstr("leaves the staging memory")) << offset << " " << bytes;
      }
    }
  }
  ExpectAsBefore();
}

TEST_F(Arithmetic, OfAllocationsDoesNotWrap) {
  auto session = Open();
  uint32_t id = ops::kMaxOutputs + ops::kMaxInputs;
  for (const uint64_t edge : kEdges) {
    if (edge < (1ull << 40)) continue;
    session->Put(Allocate({++id, 1}, edge));
    EXPECT_THAT(TextOf(session->Settle()), HasSubstr("out of memory")) << edge;
  }
  session.reset();
  ExpectAsBefore();
}

// Each view is refused, as a protocol error or as an error of the op.
TEST_F(Arithmetic, OfViewsNeitherWrapsNorLeavesTheBuffer) {
  auto session = Open();
  int refused = 0;
  const auto try_view = [&](const View& view) {
    const View right = TensorView({1, 1}, view.sizes);
    for (const bool reads : {true, false}) {
      const View *const out = reads ? &right : &view, *const in = reads ? &view : &right;
      session->Put(Execute(ops::RowOf("neg"), DType::kFloat32, {out, 1}, {in, 1}));
      const absl::Status status = session->Settle();
      EXPECT_THAT(TextOf(status),
                  AnyOf(HasSubstr("overflows"), HasSubstr("leaves its buffer"), HasSubstr("would take")));
      ++refused;
      if (session->closed()) session = Open();
    }
  };
  for (const uint64_t edge : kEdges) {
    try_view(TensorView({2, 1}, {edge}));
    try_view(TensorView({2, 1}, {edge, edge}));
    try_view(TensorView({2, 1}, {edge, edge, edge, edge}));
    try_view(TensorView({2, 1}, {edge, 0 - edge}));
    try_view(TensorView({2, 1}, {edge, 1 + kMax / edge}));  // a product of 2^64, or a little more
    try_view(TensorView({2, 1}, {2}, DType::kFloat32, edge));
    try_view(TensorView({2, 1}, {2}, DType::kFloat32, edge, {0 - edge}));
    try_view(TensorView({2, 1}, {2}, DType::kFloat32, 0, {edge}));
    try_view(TensorView({2, 1}, {3, 3}, DType::kFloat32, 0, {edge, 0 - edge}));
    try_view(TensorView({2, 1}, {1 + kMax / edge, 2}, DType::kFloat32, 0, {edge, 1}));
  }
  // Of 2^64 - 3 elements from its first to its last one: with the offset, of few.
  try_view(TensorView({2, 1}, {256, 2}, DType::kFloat32, 8, {1ull << 56, (1ull << 56) - 4}));
  EXPECT_EQ(refused, static_cast<int>(20 * std::size(kEdges)) + 2);
  session.reset();
  ExpectAsBefore();
}

// Returns which numbers of a call's attributes are the lengths of lists.
std::vector<bool> LengthsOfLists(const ops::Row& row) {
  const std::vector<ops::Number> numbers = RightCall(row).attributes;
  std::vector<bool> lengths;
  for (const ops::Attribute& attribute : ops::DescriptorOf(row).attributes) {
    if (lengths.size() >= numbers.size()) break;
    const bool list = ops::IsList(attribute.type);
    const int64_t elements = list ? numbers[lengths.size()].AsInteger() : 0;
    lengths.push_back(list);
    lengths.insert(lengths.end(), static_cast<size_t>(elements), false);
  }
  return lengths;
}

TEST_F(Arithmetic, OfAttributesIsCheckedWhateverTheirKind) {
  auto session = Open();
  const double real = std::numeric_limits<double>::max(), nan = std::numeric_limits<double>::quiet_NaN();
  const ops::Number extremes[] = {ops::Number::Integer(std::numeric_limits<int64_t>::min()),
                                  ops::Number::Integer(-1),
                                  ops::Number::Integer(std::numeric_limits<int64_t>::max()),
                                  ops::Number::Integer(1ll << 32),
                                  ops::Number::Real(real),
                                  ops::Number::Real(-real),
                                  ops::Number::Real(nan)};
  int calls = 0;
  for (const ops::Row& row : ops::kRows) {
    const std::vector<bool> lengths = LengthsOfLists(row);
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i]) continue;  // a wrong one closes the session
      for (const ops::Number& extreme : extremes) {
        Call call = RightCall(row);
        call.attributes[i] = extreme;
        session->Put(call.bytes());
        session->Settle().IgnoreError();  // whichever it is
        ASSERT_FALSE(session->closed()) << row.aten;
        ++calls;
      }
    }
  }
  EXPECT_GT(calls, 100);
  session.reset();
  ExpectAsBefore(kOfKernels);
}

// Division by zero, the lowest integer by -1, shifts and powers: kernels do not trap.
TEST_F(Arithmetic, OfElementsNeverFaults) {
  auto session = Open();
  constexpr auto kLowest = std::numeric_limits<int64_t>::min(),
                 kHighest = std::numeric_limits<int64_t>::max();
  constexpr auto kLowest32 = int64_t{std::numeric_limits<int32_t>::min()};
  const int64_t elements[] = {0,
                              -1,
                              1,
                              kLowest,
                              kHighest,
                              64,
                              63,
                              -64,
                              kLowest32,
                              kLowest + (int64_t{1} << 31),
                              -1 - (int64_t{1} << 32),
                              2};
  constexpr size_t kCount = std::size(elements);
  // Every pair of them, for int64; other types see their halves and quarters.
  std::vector<int64_t> left, right;
  for (const int64_t a : elements) {
    for (const int64_t b : elements) left.push_back(a), right.push_back(b);
  }
  for (uint32_t id = 1; id <= ops::kMaxOutputs + ops::kMaxInputs; ++id) {
    const auto& values = id % 2 == 0 ? left : right;
    session->Put(UploadInline({id, 1}, 0, std::as_bytes(std::span(values))));
  }
  int ran = 0;
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kMap && row.family != ops::Family::kReduce) continue;
    for (const DType type : {DType::kInt64, DType::kInt32, DType::kInt8}) {
      if (!ops::Contains(row.dtypes, type)) continue;
      Call call = RightCall(row, type);
      for (View* view : call.operands()) {
        if (!view->sizes.empty()) view->sizes = {kCount, kCount};
      }
      if (row.family == ops::Family::kReduce) call.outputs[0].sizes = {kCount, 1};
      session->Put(call.bytes());
      ran += session->Settle().ok();
      ASSERT_FALSE(session->closed()) << row.aten;
      ASSERT_EQ(kill(daemon_.pid(), 0), 0);
    }
  }
  EXPECT_GT(ran, 100);
  session.reset();
  ExpectAsBefore(kOfKernels);
}

}  // namespace
}  // namespace xpud::isolation
