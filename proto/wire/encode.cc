#include "proto/wire/encode.h"

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace xpud::wire {
namespace {

bool FitsNarrow(int64_t v) { return static_cast<uint64_t>(v) <= std::numeric_limits<uint32_t>::max(); }

bool IsRowMajor(const TensorRef& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t expected = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    if (tensor.sizes[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

uint8_t FlagsOf(const TensorRef& tensor) {
  uint8_t flags = IsRowMajor(tensor) ? 0 : kStrided;
  bool narrow = FitsNarrow(static_cast<int64_t>(tensor.offset / ops::SizeOf(tensor.dtype)));
  for (int d = 0; d < tensor.rank; ++d) {
    narrow &= FitsNarrow(tensor.sizes[d]);
    if (flags & kStrided) narrow &= FitsNarrow(tensor.strides[d]);
  }
  return narrow ? flags : static_cast<uint8_t>(flags | kWide);
}

size_t TensorBytes(const TensorRef& tensor, uint8_t flags) {
  const size_t dims = tensor.rank * ((flags & kStrided) ? 2u : 1u);
  return (flags & kWide) ? 24 + 8 * dims : PadTo8(16 + 4 * dims);
}

size_t OperandBytes(const TensorRef& operand) {
  switch (operand.kind) {
    case TensorRef::Kind::kAbsent:
      return sizeof(OperandHeader);
    case TensorRef::Kind::kImmediate:
      return sizeof(OperandHeader) + 8;
    case TensorRef::Kind::kTensor:
      return TensorBytes(operand, FlagsOf(operand));
  }
  return 0;
}

template <typename T>
void Put(std::byte*& out, T value) {
  std::memcpy(out, &value, sizeof(T));
  out += sizeof(T);
}

template <typename Dim>
void PutDims(std::byte*& out, const int64_t* dims, int rank) {
  for (int d = 0; d < rank; ++d) Put(out, static_cast<Dim>(dims[d]));
}

void PutTensor(std::byte*& out, const TensorRef& tensor) {
  std::byte* const start = out;
  const uint8_t flags = FlagsOf(tensor);
  Put(out, OperandHeader{OperandKind::kTensor, static_cast<uint8_t>(tensor.dtype), tensor.rank, flags,
                         tensor.buffer.id});
  Put(out, tensor.buffer.generation);
  const uint64_t offset = tensor.offset / ops::SizeOf(tensor.dtype);
  if (flags & kWide) {
    Put(out, uint32_t{0});
    Put(out, offset);
    PutDims<uint64_t>(out, tensor.sizes, tensor.rank);
    if (flags & kStrided) PutDims<uint64_t>(out, tensor.strides, tensor.rank);
    return;
  }
  Put(out, static_cast<uint32_t>(offset));
  PutDims<uint32_t>(out, tensor.sizes, tensor.rank);
  if (flags & kStrided) PutDims<uint32_t>(out, tensor.strides, tensor.rank);
  if (static_cast<size_t>(out - start) % 8 != 0) Put(out, uint32_t{0});
}

void PutOperand(std::byte*& out, const TensorRef& operand) {
  switch (operand.kind) {
    case TensorRef::Kind::kAbsent:
      Put(out, OperandHeader{OperandKind::kAbsent, 0, 0, 0, 0});
      return;
    case TensorRef::Kind::kImmediate: {
      const OperandKind kind = operand.number.is_integer ? OperandKind::kInteger : OperandKind::kReal;
      Put(out, OperandHeader{kind, static_cast<uint8_t>(operand.dtype), 0, 0, 0});
      Put(out, operand.number.integer);
      return;
    }
    case TensorRef::Kind::kTensor:
      PutTensor(out, operand);
      return;
  }
}

absl::Status CheckTensor(const TensorRef& tensor) {
  if (tensor.rank > ops::kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of rank ", tensor.rank, "; at most ", ops::kMaxRank, " is allowed"));
  }
  if (!ops::IsValid(tensor.dtype)) return absl::InvalidArgumentError("a tensor of unknown dtype");
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.sizes[d] < 0 || (tensor.strides != nullptr && tensor.strides[d] < 0)) {
      return absl::InvalidArgumentError("sizes and strides of a tensor must not be negative");
    }
  }
  if (tensor.offset % ops::SizeOf(tensor.dtype) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor starts at byte ", tensor.offset, ", no multiple of its element size"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckEncodable(const OpCall& call) {
  if (call.outputs.size() > ops::kMaxOutputs || call.inputs.size() > ops::kMaxInputs ||
      call.attributes.size() > ops::kMaxAttributes) {
    return absl::InvalidArgumentError(
        absl::StrCat("an op with ", call.outputs.size(), " outputs, ", call.inputs.size(), " inputs and ",
                     call.attributes.size(), " attributes; at most ", ops::kMaxOutputs, ", ", ops::kMaxInputs,
                     " and ", ops::kMaxAttributes, " are allowed"));
  }
  for (const auto operands : {call.outputs, call.inputs}) {
    for (const TensorRef& operand : operands) {
      if (operand.kind != TensorRef::Kind::kTensor) continue;
      if (absl::Status status = CheckTensor(operand); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

size_t ExecuteBytes(const OpCall& call) {
  size_t bytes = sizeof(ExecuteCommand) + 8 * call.attributes.size();
  for (const TensorRef& operand : call.outputs) bytes += OperandBytes(operand);
  for (const TensorRef& operand : call.inputs) bytes += OperandBytes(operand);
  return bytes;
}

void EncodeExecute(const OpCall& call, uint32_t queue, std::byte* out) {
  std::byte* const start = out;
  ExecuteCommand command{};
  command.row = call.row->number;
  command.compute = static_cast<uint8_t>(call.compute);
  command.outputs = static_cast<uint8_t>(call.outputs.size());
  command.inputs = static_cast<uint8_t>(call.inputs.size());
  command.attributes = static_cast<uint8_t>(call.attributes.size());
  for (size_t i = 0; i < call.attributes.size(); ++i) {
    if (call.attributes[i].is_integer) command.integer_attributes |= static_cast<uint16_t>(1u << i);
  }
  out += sizeof(ExecuteCommand);
  for (const TensorRef& operand : call.outputs) PutOperand(out, operand);
  for (const TensorRef& operand : call.inputs) PutOperand(out, operand);
  for (const ops::Number& number : call.attributes) Put(out, number.integer);
  command.header = Header(CommandKind::kExecute, queue, static_cast<size_t>(out - start));
  std::memcpy(start, &command, sizeof(command));
}

}  // namespace xpud::wire
