#include "proto/loops/codec.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "proto/loops/call_check.h"
#include "proto/loops/check.h"
#include "proto/loops/testing/builder.h"
#include "proto/loops/text.h"

namespace xpud::loops {
namespace {

using testing::BodyBuilder;

TEST(Codec, KernelsComeBackAsTheyWere) {
  testing::RandomKernels random(1);
  for (int i = 0; i < 2000; ++i) {
    const Kernel kernel = i == 0 ? testing::Softmax() : i == 1 ? testing::MaskedGather() : random.Next();
    const absl::StatusOr<Kernel> decoded = Decode(Encode(kernel));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, kernel);
  }
}

// Every kind of statement, with each of its fields.
TEST(Codec, AllStatementsComeBack) {
  for (int kind = 0; kind < kNumStatementKinds; ++kind) {
    Statement s;
    s.kind = static_cast<StatementKind>(kind);
    struct Filler {
      void Type(DType& type) { type = DType::kFloat64; }
      void Function(loops::Function& function) { function = Function::where; }
      void Reduction(loops::Reduction& reduction) { reduction = Reduction::kWelfordCombine; }
      void Flag(bool& flag) { flag = true; }
      void Operand(uint32_t& operand) { operand = next++; }
      void Index(uint32_t& index) { index = next++; }
      void Value(uint32_t& value) { value = next++; }
      void Integer(int64_t& integer) { integer = std::numeric_limits<int64_t>::min(); }
      void Real(double& real) { real = -0.0; }
      uint32_t next = 1000;
    } filler;
    VisitFields(s, filler);
    Kernel kernel;
    kernel.bodies.resize(1);
    kernel.bodies[0].statements = {s};
    const absl::StatusOr<Kernel> decoded = Decode(Encode(kernel));
    ASSERT_TRUE(decoded.ok()) << kind << ": " << decoded.status();
    EXPECT_EQ(*decoded, kernel) << kind;
  }
}

// The bytes are on the wire, and keys of caches.
TEST(Codec, BytesDoNotChange) {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  b.Store(1, i, b.Call(Function::add, DType::kFloat32, b.Load(0, i), b.Real(1)));
  const Kernel kernel = {.operands = {{DType::kFloat32, Role::kRead}, {DType::kFloat16, Role::kWritten}},
                         .sizes = 1,
                         .bodies = {b.body}};
  const std::string expected(
      "\x01"                  // version
      "\x02\x08\x01\x06\x02"  // two operands
      "\x01\x01"              // a size, a body
      "\x01\x01\x00"          // a dimension, outer, of node 0
      "\x02\x02\x00\x01\x00"  // size 0, iterator 0
      "\x04"
      "\x02\x00\x01"                              // load
      "\x00\x08\x00\x00\x00\x00\x00\x00\xf0\x3f"  // 1.0
      "\x05\x00\x08\x00\x01"                      // add
      "\x03\x01\x01\x02",                         // store
      39);
  EXPECT_EQ(Encode(kernel), expected);
}

TEST(Codec, NothingElseIsAccepted) {
  const std::string bytes = Encode(testing::Softmax());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(Decode(bytes.substr(0, length)).ok()) << length;
  EXPECT_EQ(Decode(bytes + '\0').status().message(),
            absl::StrCat("byte ", bytes.size(), ": bytes are left over"));
  EXPECT_EQ(Decode("\x02").status().message(), "byte 1: version 2, this daemon knows 1");
  EXPECT_EQ(Decode(std::string("\x81\x00", 2)).status().message(),
            "byte 2: a number is longer than it must be");
  EXPECT_EQ(Decode("\x01\xff\x01").status().message(),
            "byte 3: number of operands 255, at most 120 is allowed");
  EXPECT_FALSE(Decode(std::string(kMaxKernelBytes + 1, '\1')).ok());
}

// Bytes that a hostile client could send: whatever is accepted is canonical, and can be checked and printed.
TEST(Codec, MutatedBytesDoNoHarm) {
  testing::RandomKernels random(2);
  int accepted = 0, checked = 0;
  for (int i = 0; i < 200'000; ++i) {
    const int64_t which = random.Below(3);
    std::string bytes = Encode(which == 0   ? testing::Softmax()
                               : which == 1 ? testing::MaskedGather()
                                            : random.Next());
    for (int64_t n = 1 + random.Below(3); n > 0; --n) {
      const auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(bytes.size())));
      const auto byte = static_cast<char>(random.Below(4) == 0 ? random.Below(256) : random.Below(20));
      switch (random.Below(3)) {
        case 0:
          bytes.insert(at, 1, byte);
          break;
        case 1:
          bytes.erase(at, 1);
          break;
        default:
          bytes[at] = byte;
      }
    }
    const absl::StatusOr<Kernel> kernel = Decode(bytes);
    if (!kernel.ok()) continue;
    ++accepted;
    ASSERT_EQ(Encode(*kernel), bytes);
    ASSERT_FALSE(TextOf(*kernel).empty());
    const absl::StatusOr<KernelInfo> info = CheckKernel(*kernel);
    if (!info.ok()) continue;
    ++checked;
    const std::vector<int64_t> sizes(kernel->sizes, random.Below(5) - 1),
        elements(kernel->operands.size(), 4);
    (void)CheckCall(*kernel, *info, sizes, elements);
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(checked, 100);
}

TEST(Text, IsForPeople) {
  EXPECT_EQ(TextOf(testing::Softmax()),
            "p0: in bfloat16\n"
            "p1: out bfloat16\n"
            "sizes s0 to s1\n"
            "for i0 < s0\n"
            "reduce i1 < s1\n"
            "  v0 = load p0[((i0 * s1) + i1)]\n"
            "  v1 = reduce max.float32 v0\n"
            "  v2 = call sub.float32 v0 v1\n"
            "  v3 = call exp.float32 v2\n"
            "  v4 = reduce sum.float32 v3\n"
            "  v5 = call div.float32 v3 v4\n"
            "  v6 = store p1[((i0 * s1) + i1)] v5\n");
}

}  // namespace
}  // namespace xpud::loops
