#include "proto/wire/decode.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::wire {
namespace {

absl::Status Broken(const char* what) { return absl::InvalidArgumentError(what); }

// A cursor over a command's bytes that never reads past their end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}
  template <typename T>
  bool Get(T& value) {
    if (Refused(static_cast<size_t>(end_ - at_) < sizeof(T))) return false;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  template <typename Dim>
  bool GetDims(std::array<int64_t, ops::kMaxRank>& dims, int rank) {
    for (int d = 0; d < rank; ++d) {
      Dim dim;
      if (!Get(dim)) return false;
      dims[d] = static_cast<int64_t>(dim);
    }
    return true;
  }
  bool AtEnd() const { return at_ == end_; }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

void DeriveStrides(DecodedOperand& operand) {
  int64_t stride = 1;
  for (int d = operand.rank - 1; d >= 0; --d) {
    operand.strides[d] = stride;
    stride *= operand.sizes[d] > 0 ? operand.sizes[d] : 1;
  }
}

// numel * element size, and every stride, stay far below 2^63.
absl::Status CheckExtent(const DecodedOperand& operand) {
  constexpr uint64_t kLimit = uint64_t{1} << 56;
  uint64_t elements = ops::SizeOf(operand.dtype);
  for (int d = 0; d < operand.rank; ++d) {
    const uint64_t size = static_cast<uint64_t>(operand.sizes[d]);
    if (size > kLimit || __builtin_mul_overflow(elements, size == 0 ? 1 : size, &elements) ||
        elements > kLimit) {
      return Broken("a tensor's size overflows");
    }
    if (operand.strided && static_cast<uint64_t>(operand.strides[d]) > kLimit)
      return Broken("a tensor's stride overflows");
  }
  return operand.offset > kLimit ? Broken("a tensor's offset overflows") : absl::OkStatus();
}

absl::Status GetTensorBody(Reader& reader, uint8_t flags, DecodedOperand& operand) {
  uint32_t word;
  bool complete = reader.Get(operand.buffer.generation) && reader.Get(word);
  if (flags & kWide) {
    if (Refused(complete && word != 0)) return Broken("reserved bytes of a tensor are not zero");
    complete = complete && reader.Get(operand.offset) &&
               reader.GetDims<uint64_t>(operand.sizes, operand.rank) &&
               (!operand.strided || reader.GetDims<uint64_t>(operand.strides, operand.rank));
  } else {
    operand.offset = word;
    complete = complete && reader.GetDims<uint32_t>(operand.sizes, operand.rank) &&
               (!operand.strided || reader.GetDims<uint32_t>(operand.strides, operand.rank));
    const unsigned dims = operand.rank * (operand.strided ? 2u : 1u);
    if (dims % 2 != 0) complete = complete && reader.Get(word);
  }
  if (!complete) return Broken("a command ends inside a tensor");
  if (kChecked) RETURN_IF_ERROR(CheckExtent(operand));
  if (!operand.strided) DeriveStrides(operand);
  return absl::OkStatus();
}

absl::Status GetOperand(Reader& reader, DecodedOperand& operand) {
  OperandHeader header;
  if (!reader.Get(header)) return Broken("a command ends inside an operand");
  operand.kind = header.kind;
  if (header.kind == OperandKind::kAbsent) return absl::OkStatus();
  operand.dtype = static_cast<ops::DType>(header.dtype);
  if (Refused(!ops::IsValid(operand.dtype))) return Broken("an operand has an unknown dtype");
  if (header.kind == OperandKind::kInteger || header.kind == OperandKind::kReal) {
    operand.number.is_integer = header.kind == OperandKind::kInteger;
    operand.rank = 0;
    return reader.Get(operand.number.integer) ? absl::OkStatus()
                                              : Broken("a command ends inside an immediate");
  }
  if (Refused(header.kind != OperandKind::kTensor)) return Broken("an operand of unknown kind");
  if (Refused(header.rank > ops::kMaxRank)) return Broken("a tensor's rank is too large");
  if (Refused((header.flags & ~(kStrided | kWide)) != 0)) return Broken("a tensor has unknown flags");
  operand.rank = header.rank;
  operand.strided = (header.flags & kStrided) != 0;
  operand.buffer.id = header.buffer;
  return GetTensorBody(reader, header.flags, operand);
}

}  // namespace

absl::Status DecodeHeader(std::span<const std::byte> bytes, CommandHeader& header) {
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (Refused(header.bytes < sizeof(header) || header.bytes > kMaxCommandBytes || header.bytes % 8 != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("a command of ", header.bytes,
                                                   " bytes; multiples of 8 from 8 to ", kMaxCommandBytes,
                                                   " are allowed"));
  }
  if (Refused(header.reserved != 0)) return Broken("reserved bytes of a command are not zero");
  if (Refused(header.queue >= kMaxQueues)) {
    return absl::InvalidArgumentError(
        absl::StrCat("queue ", header.queue, "; ids below ", kMaxQueues, " are allowed"));
  }
  return absl::OkStatus();
}

absl::Status DecodeUploadInline(std::span<const std::byte> bytes, UploadInlineCommand& command,
                                std::span<const std::byte>& payload) {
  if (Refused(bytes.size() < sizeof(command))) return Broken("a command's size does not fit its kind");
  std::memcpy(&command, bytes.data(), sizeof(command));
  if (Refused(command.bytes > kMaxInlineUploadBytes ||
              bytes.size() != sizeof(command) + ((command.bytes + 7u) & ~7u))) {
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
  if (Refused(execute.row == nullptr))
    return absl::InvalidArgumentError(absl::StrCat("op ", command.row, " does not exist"));
  execute.compute = static_cast<ops::DType>(command.compute);
  if (Refused(!ops::IsValid(execute.compute))) return Broken("an op has an unknown compute dtype");
  if (Refused(command.outputs > ops::kMaxOutputs || command.inputs > ops::kMaxInputs ||
              command.attributes > ops::kMaxAttributes)) {
    return Broken("an op has too many operands");
  }
  execute.outputs = command.outputs;
  execute.inputs = command.inputs;
  execute.attributes = command.attributes;
  for (int i = 0; i < command.outputs + command.inputs; ++i)
    RETURN_IF_ERROR(GetOperand(reader, execute.operands[i]));
  for (int i = 0; i < command.attributes; ++i) {
    execute.numbers[i].is_integer = (command.integer_attributes >> i & 1) != 0;
    if (!reader.Get(execute.numbers[i].integer)) return Broken("a command ends inside an attribute");
  }
  return Refused(!reader.AtEnd()) ? Broken("bytes trail an op") : absl::OkStatus();
}

}  // namespace xpud::wire
