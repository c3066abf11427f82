#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
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
  std::vector<std::byte> bytes(*ExecuteBytes(call));
  EncodeExecute(call, 3, bytes.data());
  return bytes;
}

std::vector<std::byte> Define(uint32_t id, std::span<const std::byte> kernel, std::string_view name) {
  std::vector<std::byte> bytes(*DefineKernelBytes(kernel, name), std::byte{0xff});
  EncodeDefineKernel(id, kernel, name, 3, bytes.data());
  return bytes;
}

std::vector<std::byte> Prepare(uint32_t id, std::span<const int64_t> sizes,
                               std::span<const int64_t> elements) {
  std::vector<std::byte> bytes(*PrepareKernelBytes(sizes, elements), std::byte{0xff});
  EncodePrepareKernel(id, sizes, elements, 3, bytes.data());
  return bytes;
}

struct Example {
  std::vector<int64_t> sizes{4, 3}, strides{1, 4}, big{int64_t{1} << 33};
  TensorRef output = Tensor(sizes);
  std::vector<TensorRef> inputs{Tensor(sizes, &strides, 64), Tensor(big), TensorRef::Immediate(int64_t{5})};
  OpCall call() { return {&ops::RowOf("add.Tensor"), ops::DType::kFloat32, {&output, 1}, inputs, {}}; }
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
}

TEST(Wire, AttributesHaveTheTypesOfTheirSchema) {
  Example example;
  const ops::Number numbers[] = {ops::Number::Integer(2), ops::Number::Real(0.5), ops::Number::Real(1)};
  const OpCall call = {
      &ops::RowOf("addmm"), ops::DType::kFloat32, {&example.output, 1}, example.inputs, numbers};
  DecodedExecute decoded;
  ASSERT_TRUE(DecodeExecute(Encode(call), decoded).ok());
  ASSERT_EQ(decoded.attributes.size(), 3u);
  EXPECT_FALSE(decoded.attributes[0].is_integer);
  EXPECT_EQ(decoded.attributes[0].AsReal(), 2);
  EXPECT_EQ(decoded.attributes[1].AsReal(), 0.5);
  EXPECT_TRUE(decoded.attributes[2].is_integer);
  EXPECT_EQ(decoded.attributes[2].AsInteger(), 1);
}

TEST(Wire, AttributesThatAreLeftOutHaveTheirDefaults) {
  Example example;
  OpCall call = {&ops::RowOf("sum.dim_IntList"),
                 ops::DType::kFloat32,
                 {&example.output, 1},
                 {example.inputs.data(), 1},
                 {}};
  DecodedExecute decoded;
  ASSERT_TRUE(DecodeExecute(Encode(call), decoded).ok());
  ASSERT_EQ(decoded.attributes.size(), 1u);
  EXPECT_EQ(decoded.attributes[0].AsReal(), 0);
  call.row = &ops::RowOf("addmm");
  EXPECT_EQ(ExecuteBytes(call).status().message(), "attribute 'beta' is missing");
  const ops::Number four[4] = {};
  call.attributes = four;
  EXPECT_EQ(ExecuteBytes(call).status().message(), "4 attributes; 3 are allowed");
}

TEST(Wire, TensorListsHaveTheirLengths) {
  Example example;
  const std::vector<TensorRef> tensors(5, example.inputs[0]);
  const ops::Number dim = ops::Number::Integer(0);
  const uint16_t length = 5, wrong = 4;
  OpCall call = {&ops::RowOf("cat"), ops::DType::kFloat32, {&example.output, 1}, tensors,
                 {&dim, 1},          {&length, 1}};
  DecodedExecute decoded;
  ASSERT_TRUE(DecodeExecute(Encode(call), decoded).ok());
  EXPECT_EQ(decoded.lists, std::vector<uint16_t>{5});
  EXPECT_EQ(decoded.inputs, 5u);
  call.lists = {&wrong, 1};
  EXPECT_EQ(DecodeExecute(Encode(call), decoded).message(),
            "the lengths of an op's lists do not fit its operands");
  call.lists = {};
  EXPECT_EQ(ExecuteBytes(call).status().message(), "an op with 0 tensor lists; it has 1");
}

TEST(Wire, MoreTensorsOrBytesThanACommandMayHaveAreRefused) {
  Example example;
  std::vector<TensorRef> many(ops::kMaxOperands, example.inputs[0]);
  OpCall call = {&ops::RowOf("add.Tensor"), ops::DType::kFloat32, {&example.output, 1}, many, {}};
  EXPECT_EQ(ExecuteBytes(call).status().message(), "an op with 1025 tensors; at most 1024 are allowed");
  const std::vector<int64_t> large(8, int64_t{1} << 33), strides(8, 0);
  std::vector<TensorRef> wide(500, Tensor(large, &strides));
  call.inputs = wide;
  EXPECT_EQ(ExecuteBytes(call).status().code(), absl::StatusCode::kInvalidArgument);
}

// A command of variable size, and whether bytes are one.
struct Form {
  const char* name;
  std::vector<std::byte> bytes;
  std::function<bool(std::span<const std::byte>)> decodes;
};

std::vector<Form> Forms() {
  Example example;
  const auto execute = [](std::span<const std::byte> bytes) {
    static DecodedExecute decoded;
    return DecodeExecute(bytes, decoded).ok();
  };
  const auto define = [](std::span<const std::byte> bytes) {
    DefineKernelCommand command;
    std::string_view kernel, name;
    return DecodeDefineKernel(bytes, command, kernel, name).ok();
  };
  const auto prepare = [](std::span<const std::byte> bytes) {
    static DecodedPrepare decoded;
    return DecodePrepareKernel(bytes, decoded).ok();
  };
  const std::vector<int64_t> sizes = {-1, int64_t{1} << 62}, elements = {0, 1, kMaxElements};
  return {{"execute", Encode(example.call()), execute},
          {"define", Define(77, std::vector<std::byte>(13, std::byte{5}), "softmax"), define},
          {"prepare", Prepare(77, sizes, elements), prepare}};
}

TEST(Wire, EveryTruncationIsRefused) {
  for (const Form& form : Forms()) {
    for (size_t length = 0; length < form.bytes.size(); ++length) {
      std::vector<std::byte> part(
          form.bytes.begin(),
          form.bytes.begin() + static_cast<std::ptrdiff_t>(length));  // exact size, so ASan sees overreads
      EXPECT_FALSE(form.decodes(part)) << form.name << " " << length;
    }
  }
}

TEST(Wire, TrailingBytesAreRefused) {
  for (Form& form : Forms()) {
    form.bytes.resize(form.bytes.size() + 8);
    EXPECT_FALSE(form.decodes(form.bytes)) << form.name;
  }
}

TEST(Wire, RandomBytesNeverCrashTheDecoder) {
  std::mt19937 random(1);
  for (const Form& form : Forms()) {
    int accepted = 0;
    for (int round = 0; round < 200000; ++round) {
      auto bytes = form.bytes;
      for (int flips = 0; flips < 3; ++flips)
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
      accepted += form.decodes(bytes);
    }
    EXPECT_GT(accepted, 0) << form.name;
    EXPECT_LT(accepted, 200000) << form.name;
  }
}

TEST(Wire, ADefinitionArrivesAsItWasSent) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{13}, kMaxCommandBytes - 24 - kMaxKernelName}) {
    for (const size_t name_size : {size_t{0}, size_t{3}, kMaxKernelName}) {
      const std::vector<std::byte> kernel(size, std::byte{5});
      const std::string name(name_size, 'n');
      const auto bytes = Define(77, kernel, name);
      CommandHeader header;
      ASSERT_TRUE(DecodeHeader(bytes, header).ok());
      EXPECT_EQ(header.kind, CommandKind::kDefineKernel);
      EXPECT_EQ(header.bytes, bytes.size());
      DefineKernelCommand command;
      std::string_view got, got_name;
      ASSERT_TRUE(DecodeDefineKernel(bytes, command, got, got_name).ok());
      EXPECT_EQ(command.kernel, 77u);
      EXPECT_EQ(got, std::string(size, '\5'));
      EXPECT_EQ(got_name, name);
    }
  }
}

TEST(Wire, DefinitionsThatTheWireCannotCarryAreRefusedBeforeEncoding) {
  const std::vector<std::byte> kernel(kMaxCommandBytes);
  EXPECT_FALSE(DefineKernelBytes(kernel, "").ok());
  EXPECT_FALSE(DefineKernelBytes({}, std::string(kMaxKernelName + 1, 'n')).ok());
}

TEST(Wire, TheSizesOfACallThatFollowsArriveAsTheyWereSent) {
  constexpr size_t kMost = (kMaxCommandBytes - sizeof(PrepareKernelCommand)) / sizeof(int64_t);
  for (const auto& [sizes, operands] :
       {std::pair<size_t, size_t>{0, 0}, {3, 0}, {0, 128}, {2, 5}, {1, kMost - 1}}) {
    const std::vector<int64_t> sent(sizes, -7), elements(operands, 9);
    const auto bytes = Prepare(77, sent, elements);
    CommandHeader header;
    ASSERT_TRUE(DecodeHeader(bytes, header).ok());
    EXPECT_EQ(header.kind, CommandKind::kPrepareKernel);
    EXPECT_EQ(header.bytes, bytes.size());
    DecodedPrepare decoded;
    ASSERT_TRUE(DecodePrepareKernel(bytes, decoded).ok());
    EXPECT_EQ(decoded.kernel, 77u);
    EXPECT_EQ(decoded.sizes, sent);
    EXPECT_EQ(decoded.elements, elements);
  }
  const std::vector<int64_t> one(1), most(kMost), wrong = {-1}, more = {kMaxElements + 1};
  EXPECT_FALSE(PrepareKernelBytes(one, most).ok());
  DecodedPrepare decoded;
  for (const auto& elements : {wrong, more})
    EXPECT_EQ(DecodePrepareKernel(Prepare(77, {}, elements), decoded).message(),
              "an operand has too many elements");
}

TEST(Wire, NamesOfRangesFitTheirCommands) {
  const auto range = [](uint32_t name_bytes, size_t bytes, uint32_t reserved = 0) {
    std::vector<std::byte> encoded(bytes, std::byte{'x'});
    const RangeCommand command = {Header(CommandKind::kRange, 0, bytes), name_bytes, reserved};
    std::memcpy(encoded.data(), &command, sizeof(command));
    return encoded;
  };
  std::string_view name;
  for (const uint32_t size : {0u, 1u, 8u, uint32_t{kMaxRangeName}}) {
    const auto encoded = range(size, sizeof(RangeCommand) + PadTo8(size));
    ASSERT_TRUE(DecodeRange(encoded, name).ok()) << size;
    EXPECT_EQ(name, std::string(size, 'x'));
  }
  EXPECT_FALSE(DecodeRange(range(1, 16), name).ok()) << "it does not follow";
  EXPECT_FALSE(DecodeRange(range(0, 24), name).ok()) << "more follows";
  EXPECT_FALSE(DecodeRange(range(~0u, 16), name).ok());
  EXPECT_FALSE(DecodeRange(range(0, 16, 1), name).ok());
  const auto whole = range(0, 16);
  EXPECT_FALSE(DecodeRange(std::span(whole).first(8), name).ok());
  EXPECT_FALSE(
      DecodeRange(range(kMaxRangeName + 1, sizeof(RangeCommand) + PadTo8(kMaxRangeName + 1)), name).ok());
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
  const ops::Row& row = ops::RowOf("neg");
  EXPECT_FALSE(ExecuteBytes({&row, ops::DType::kFloat32, {&deep, 1}, {}, {}}).ok());
  EXPECT_FALSE(ExecuteBytes({&row, ops::DType::kFloat32, {&minus, 1}, {}, {}}).ok());
  EXPECT_FALSE(ExecuteBytes({&row, ops::DType::kFloat32, {&odd, 1}, {}, {}}).ok());
}

}  // namespace
}  // namespace xpud::wire
