#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "proto/wire/decode.h"
#include "proto/wire/encode.h"

namespace xpud::wire {
namespace {

TensorRef Tensor(const std::vector<int64_t>& sizes, const std::vector<int64_t>* strides = nullptr,
                 uint64_t offset = 0) {
  TensorRef ref;
  ref.kind = TensorRef::Kind::kTensor;
  ref.rank = static_cast<uint8_t>(sizes.size());
  ref.buffer = {7, 9};
  ref.offset = offset;
  ref.sizes = sizes.data();
  ref.strides = strides ? strides->data() : nullptr;
  return ref;
}

std::vector<std::byte> Encode(const OpCall& call) {
  std::vector<std::byte> bytes(ExecuteBytes(call));
  EncodeExecute(call, 3, bytes.data());
  return bytes;
}

struct Example {
  std::vector<int64_t> sizes{4, 3}, strides{1, 4}, big{int64_t{1} << 33};
  TensorRef output = Tensor(sizes);
  std::vector<TensorRef> inputs{Tensor(sizes, &strides, 64), Tensor(big), TensorRef::Immediate(int64_t{5})};
  std::vector<ops::Number> attributes{ops::Number::Integer(-1), ops::Number::Real(0.5)};
  OpCall call() {
    return {&ops::RowOf("add.Tensor"), ops::DType::kFloat32, {&output, 1}, inputs, attributes};
  }
};

TEST(Wire, AnOpArrivesAsItWasSent) {
  Example example;
  const auto bytes = Encode(example.call());
  CommandHeader header;
  ASSERT_TRUE(DecodeHeader(bytes, header).ok());
  EXPECT_EQ(header.bytes, bytes.size());
  EXPECT_EQ(header.queue, 3);
  DecodedExecute decoded;
  ASSERT_TRUE(DecodeExecute(bytes, decoded).ok());
  EXPECT_EQ(decoded.row, &ops::RowOf("add.Tensor"));
  EXPECT_EQ(decoded.operands[0].strides[0], 3) << "row-major strides are derived";
  EXPECT_EQ(decoded.operands[1].strides[1], 4);
  EXPECT_EQ(decoded.operands[1].offset, 16u);
  EXPECT_EQ(decoded.operands[1].buffer.generation, 9u);
  EXPECT_EQ(decoded.operands[2].sizes[0], int64_t{1} << 33);
  EXPECT_EQ(decoded.operands[3].number.AsInteger(), 5);
  EXPECT_EQ(decoded.numbers[0].AsInteger(), -1);
  EXPECT_EQ(decoded.numbers[1].AsReal(), 0.5);
}

TEST(Wire, EveryTruncationIsRefused) {
  Example example;
  const auto bytes = Encode(example.call());
  DecodedExecute decoded;
  for (size_t length = 0; length < bytes.size(); ++length) {
    std::vector<std::byte> part(
        bytes.begin(),
        bytes.begin() + static_cast<std::ptrdiff_t>(length));  // exact size, so ASan sees overreads
    EXPECT_FALSE(DecodeExecute(part, decoded).ok()) << length;
  }
}

TEST(Wire, TrailingBytesAreRefused) {
  Example example;
  auto bytes = Encode(example.call());
  bytes.resize(bytes.size() + 8);
  DecodedExecute decoded;
  EXPECT_FALSE(DecodeExecute(bytes, decoded).ok());
}

TEST(Wire, RandomBytesNeverCrashTheDecoder) {
  std::mt19937 random(1);
  Example example;
  const auto good = Encode(example.call());
  DecodedExecute decoded;
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    auto bytes = good;
    for (int flips = 0; flips < 3; ++flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
    accepted += DecodeExecute(bytes, decoded).ok();
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 200000);
}

TEST(Wire, ASizeThatOverflowsIsRefused) {
  const std::vector<int64_t> sizes(8, int64_t{1} << 30);
  const TensorRef output = Tensor(sizes);
  const auto bytes = Encode({&ops::RowOf("neg"), ops::DType::kFloat32, {&output, 1}, {&output, 1}, {}});
  DecodedExecute decoded;
  EXPECT_EQ(DecodeExecute(bytes, decoded).message(), "a tensor's size, stride or offset overflows");
}

TEST(Wire, CallsThatTheWireCannotCarryAreRefusedBeforeEncoding) {
  const std::vector<int64_t> sizes(9, 1), negative{-1};
  TensorRef deep = Tensor(sizes), minus = Tensor(negative), odd = Tensor(negative, nullptr, 2);
  const std::vector<TensorRef> many(ops::kMaxInputs + 1);
  const ops::Row& row = ops::RowOf("neg");
  EXPECT_FALSE(CheckEncodable({&row, ops::DType::kFloat32, {&deep, 1}, {}, {}}).ok());
  EXPECT_FALSE(CheckEncodable({&row, ops::DType::kFloat32, {&minus, 1}, {}, {}}).ok());
  EXPECT_FALSE(CheckEncodable({&row, ops::DType::kFloat32, {&odd, 1}, {}, {}}).ok());
  EXPECT_FALSE(CheckEncodable({&row, ops::DType::kFloat32, {}, many, {}}).ok());
}

}  // namespace
}  // namespace xpud::wire
