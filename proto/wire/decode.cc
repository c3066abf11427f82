#include "proto/wire/decode.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace xpud::wire {
namespace {

absl::Status Broken(const char* what) { return absl::InvalidArgumentError(what); }

// A cursor over a command's bytes that never reads past their end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}
  template <typename T>
  bool Get(T& value) {
    if (static_cast<size_t>(end_ - at_) < sizeof(T)) return false;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  // The next `bytes` of them, or null.
  const std::byte* Take(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) return nullptr;
    return std::exchange(at_, at_ + bytes);
  }
  bool AtEnd() const { return at_ == end_; }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Sizes, and strides that follow them or from them. Whether the bytes of so many elements, and every stride
// and the offset, stay far below 2^63.
template <typename Dim>
bool GetDims(const std::byte* at, DecodedOperand& operand) {
  constexpr uint64_t kLimit = uint64_t{1} << 56;
  uint64_t elements = 1;
  bool fits = operand.offset <= kLimit;
  for (size_t d = operand.rank; d-- > 0;) {
    const uint64_t size = Load<Dim>(at + d * sizeof(Dim));
    const uint64_t stride = operand.strided ? Load<Dim>(at + (operand.rank + d) * sizeof(Dim)) : elements;
    operand.sizes[d] = static_cast<int64_t>(size);
    operand.strides[d] = static_cast<int64_t>(stride);
    fits &= size <= kLimit && stride <= kLimit;
    fits &= !__builtin_mul_overflow(elements, size == 0 ? 1 : size, &elements) && elements <= kLimit;
  }
  operand.bytes = elements * ops::SizeOf(operand.dtype);
  return fits && operand.bytes <= kLimit;
}

// What is wrong with it, or null.
const char* GetTensorBody(Reader& reader, uint8_t flags, DecodedOperand& operand) {
  const bool wide = (flags & kWide) != 0;
  const size_t dims = operand.rank * (operand.strided ? 2u : 1u);
  const std::byte* const at =
      reader.Take(wide ? 16 + dims * sizeof(uint64_t) : 8 + PadTo8(dims * sizeof(uint32_t)));
  if (at == nullptr) return "a command ends inside a tensor";
  operand.buffer.generation = Load<uint32_t>(at);
  const uint32_t word = Load<uint32_t>(at + 4);
  if (wide && word != 0) return "reserved bytes of a tensor are not zero";
  operand.offset = wide ? Load<uint64_t>(at + 8) : word;
  const bool fits = wide ? GetDims<uint64_t>(at + 16, operand) : GetDims<uint32_t>(at + 8, operand);
  return !fits ? "a tensor's size, stride or offset overflows" : nullptr;
}

const char* GetOperand(Reader& reader, DecodedOperand& operand) {
  OperandHeader header;
  if (!reader.Get(header)) return "a command ends inside an operand";
  operand.kind = header.kind;
  if (header.kind == OperandKind::kAbsent) return nullptr;
  operand.dtype = static_cast<ops::DType>(header.dtype);
  if (!ops::IsValid(operand.dtype)) return "an operand has an unknown dtype";
  if (header.kind == OperandKind::kInteger || header.kind == OperandKind::kReal) {
    operand.number.is_integer = header.kind == OperandKind::kInteger;
    operand.rank = 0;
    return reader.Get(operand.number.integer) ? nullptr : "a command ends inside an immediate";
  }
  if (header.kind != OperandKind::kTensor) return "an operand of unknown kind";
  if (header.rank > ops::kMaxRank) return "a tensor's rank is too large";
  if ((header.flags & ~(kStrided | kWide)) != 0) return "a tensor has unknown flags";
  operand.rank = header.rank;
  operand.strided = (header.flags & kStrided) != 0;
  operand.buffer.id = header.buffer;
  return GetTensorBody(reader, header.flags, operand);
}

}  // namespace

absl::Status DecodeHeader(std::span<const std::byte> bytes, CommandHeader& header) {
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.bytes < sizeof(header) || header.bytes > kMaxCommandBytes || header.bytes % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a command of ", header.bytes,
                                                   " bytes; multiples of 8 from 8 to ", kMaxCommandBytes,
                                                   " are allowed"));
  }
  if (header.reserved != 0) return Broken("reserved bytes of a command are not zero");
  if (header.queue >= kMaxQueues) {
    return absl::InvalidArgumentError(
        absl::StrCat("queue ", header.queue, "; ids below ", kMaxQueues, " are allowed"));
  }
  return absl::OkStatus();
}

absl::Status DecodeUploadInline(std::span<const std::byte> bytes, UploadInlineCommand& command,
                                std::span<const std::byte>& payload) {
  if (bytes.size() < sizeof(command)) return Broken("a command's size does not fit its kind");
  std::memcpy(&command, bytes.data(), sizeof(command));
  if (command.bytes > kMaxInlineUploadBytes ||
      bytes.size() != sizeof(command) + ((command.bytes + 7u) & ~7u)) {
    return Broken("an inline upload's length does not fit its command");
  }
  payload = bytes.subspan(sizeof(command), command.bytes);
  return absl::OkStatus();
}

absl::Status DecodeExecute(std::span<const std::byte> bytes, DecodedExecute& execute) {
  Reader reader(bytes);
  ExecuteCommand command;
  if (!reader.Get(command)) return Broken("a command's size does not fit its kind");
  execute.row = ops::FindRow(command.row);
  if (execute.row == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("op ", command.row, " does not exist"));
  execute.compute = static_cast<ops::DType>(command.compute);
  if (!ops::IsValid(execute.compute)) return Broken("an op has an unknown compute dtype");
  if (command.outputs > ops::kMaxOutputs || command.inputs > ops::kMaxInputs ||
      command.attributes > ops::kMaxAttributes) {
    return Broken("an op has too many operands");
  }
  execute.outputs = command.outputs;
  execute.inputs = command.inputs;
  execute.attributes = command.attributes;
  for (int i = 0; i < command.outputs + command.inputs; ++i)
    if (const char* const wrong = GetOperand(reader, execute.operands[i])) return Broken(wrong);
  for (int i = 0; i < command.attributes; ++i) {
    execute.numbers[i].is_integer = (command.integer_attributes >> i & 1) != 0;
    if (!reader.Get(execute.numbers[i].integer)) return Broken("a command ends inside an attribute");
  }
  return !reader.AtEnd() ? Broken("bytes trail an op") : absl::OkStatus();
}

}  // namespace xpud::wire
