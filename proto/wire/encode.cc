#include "proto/wire/encode.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"

namespace xpud::wire {
namespace {

static_assert(kMaxCommandBytes == ops::kMaxCommandBytes);

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

void PutAttributes(std::byte*& out, std::span<const ops::Number> numbers,
                   const ops::FamilyDescriptor& family) {
  size_t next = 0;
  for (const ops::Attribute& attribute : family.attributes) {
    const bool given = next < numbers.size();
    size_t count = 1;
    if (ops::IsList(attribute.type)) {
      count = given ? static_cast<size_t>(numbers[next++].AsInteger()) : 0;
      Put(out, uint64_t{count});
    }
    for (size_t i = 0; i < count; ++i) {
      const ops::Number number = given ? numbers[next++] : ops::Number::Real(attribute.value);
      if (ops::IsReal(attribute.type)) {
        Put(out, number.AsReal());
      } else {
        Put(out, number.AsInteger());
      }
    }
  }
}

// How many words the attributes take. Those at the end that have a default may be missing.
absl::StatusOr<size_t> AttributeWords(std::span<const ops::Number> numbers,
                                      const ops::FamilyDescriptor& family) {
  size_t next = 0, words = 0;
  for (const ops::Attribute& attribute : family.attributes) {
    if (next == numbers.size()) {
      if (attribute.required) {
        return absl::InvalidArgumentError(
            absl::StrCat("attribute '", std::string(attribute.name), "' is missing"));
      }
      ++words;
      continue;
    }
    const int64_t length = ops::IsList(attribute.type) ? numbers[next].AsInteger() : 0;
    if (length < 0 || static_cast<uint64_t>(length) >= numbers.size() - next)
      return absl::InvalidArgumentError("a list among the attributes has a wrong length");
    words += static_cast<size_t>(length) + 1;
    next += static_cast<size_t>(length) + 1;
  }
  if (next == numbers.size()) return words;
  return absl::InvalidArgumentError(absl::StrCat(numbers.size(), " attributes; ", next, " are allowed"));
}

}  // namespace

absl::StatusOr<size_t> ExecuteBytes(const OpCall& call) {
  const ops::FamilyDescriptor& family = ops::DescriptorOf(*call.row);
  if (call.outputs.size() + call.inputs.size() > ops::kMaxOperands) {
    return absl::InvalidArgumentError(absl::StrCat("an op with ", call.outputs.size() + call.inputs.size(),
                                                   " tensors; at most ", ops::kMaxOperands, " are allowed"));
  }
  if (call.lists.size() != family.lists) {
    return absl::InvalidArgumentError(
        absl::StrCat("an op with ", call.lists.size(), " tensor lists; it has ", int{family.lists}));
  }
  ASSIGN_OR_RETURN(const size_t words, AttributeWords(call.attributes, family));
  size_t bytes = sizeof(ExecuteCommand) + PadTo8(sizeof(uint16_t) * family.lists) + 8 * words;
  for (const auto operands : {call.outputs, call.inputs}) {
    for (const TensorRef& operand : operands) {
      if (operand.kind == TensorRef::Kind::kTensor) RETURN_IF_ERROR(CheckTensor(operand));
      bytes += OperandBytes(operand);
    }
  }
  if (bytes <= kMaxCommandBytes) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("an op of ", bytes, " bytes; at most ", kMaxCommandBytes,
                                                 " are allowed: split its lists"));
}

void EncodeExecute(const OpCall& call, uint32_t queue, std::byte* out) {
  std::byte* const start = out;
  ExecuteCommand command{};
  command.row = call.row->number;
  command.compute = static_cast<uint8_t>(call.compute);
  command.outputs = static_cast<uint16_t>(call.outputs.size());
  command.inputs = static_cast<uint16_t>(call.inputs.size());
  out += sizeof(ExecuteCommand);
  for (const uint16_t length : call.lists) Put(out, length);
  while (static_cast<size_t>(out - start) % 8 != 0) Put(out, uint16_t{0});
  for (const TensorRef& operand : call.outputs) PutOperand(out, operand);
  for (const TensorRef& operand : call.inputs) PutOperand(out, operand);
  PutAttributes(out, call.attributes, ops::DescriptorOf(*call.row));
  command.header = Header(CommandKind::kExecute, queue, static_cast<size_t>(out - start));
  std::memcpy(start, &command, sizeof(command));
}

absl::StatusOr<size_t> DefineKernelBytes(std::span<const std::byte> kernel, std::string_view name) {
  if (name.size() > kMaxKernelName) {
    return absl::InvalidArgumentError(absl::StrCat("a loop kernel's name of ", name.size(),
                                                   " bytes; at most ", kMaxKernelName, " are allowed"));
  }
  const size_t bytes = sizeof(DefineKernelCommand) + PadTo8(kernel.size() + name.size());
  if (kernel.size() <= kMaxCommandBytes && bytes <= kMaxCommandBytes) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("a loop kernel of ", kernel.size(),
                                                 " bytes; it does not fit a command of ", kMaxCommandBytes));
}

void EncodeDefineKernel(uint32_t id, std::span<const std::byte> kernel, std::string_view name, uint32_t queue,
                        std::byte* out) {
  const size_t bytes = sizeof(DefineKernelCommand) + PadTo8(kernel.size() + name.size());
  const DefineKernelCommand command = {Header(CommandKind::kDefineKernel, queue, bytes), id,
                                       static_cast<uint32_t>(kernel.size()),
                                       static_cast<uint32_t>(name.size()), 0};
  std::memset(out + bytes - sizeof(uint64_t), 0, sizeof(uint64_t));  // the padding
  std::memcpy(out, &command, sizeof(command));
  std::byte* const after = std::ranges::copy(kernel, out + sizeof(command)).out;
  std::ranges::copy(std::as_bytes(std::span(name)), after);
}

absl::StatusOr<size_t> PrepareKernelBytes(std::span<const int64_t> sizes, std::span<const int64_t> elements) {
  constexpr size_t kMost = (kMaxCommandBytes - sizeof(PrepareKernelCommand)) / sizeof(int64_t);
  if (sizes.size() <= kMost && elements.size() <= kMost - sizes.size())
    return sizeof(PrepareKernelCommand) + (sizes.size() + elements.size()) * sizeof(int64_t);
  return absl::InvalidArgumentError(absl::StrCat("a call of a loop kernel with ", sizes.size(), " sizes and ",
                                                 elements.size(), " operands; at most ", kMost,
                                                 " together are allowed"));
}

void EncodePrepareKernel(uint32_t id, std::span<const int64_t> sizes, std::span<const int64_t> elements,
                         uint32_t queue, std::byte* out) {
  const size_t bytes = sizeof(PrepareKernelCommand) + (sizes.size() + elements.size()) * sizeof(int64_t);
  const PrepareKernelCommand command = {Header(CommandKind::kPrepareKernel, queue, bytes), id,
                                        static_cast<uint16_t>(sizes.size()),
                                        static_cast<uint16_t>(elements.size())};
  std::memcpy(out, &command, sizeof(command));
  std::byte* const after = std::ranges::copy(std::as_bytes(sizes), out + sizeof(command)).out;
  std::ranges::copy(std::as_bytes(elements), after);
}

}  // namespace xpud::wire
