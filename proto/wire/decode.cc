#include "proto/wire/decode.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ops/family.h"

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
  constexpr uint64_t kLimit = kMaxElements;
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

// The lengths of the lists, which must account for all operands of their side.
const char* GetLists(Reader& reader, const ops::FamilyDescriptor& family, DecodedExecute& execute) {
  execute.lists.resize(family.lists);
  const std::byte* const at = reader.Take(PadTo8(family.lists * sizeof(uint16_t)));
  if (at == nullptr) return "a command ends inside the lengths of its lists";
  std::memcpy(execute.lists.data(), at, family.lists * sizeof(uint16_t));
  size_t list = 0;
  for (const auto& [parameters, operands] :
       {std::pair(family.outputs, execute.outputs), std::pair(family.inputs, execute.inputs)}) {
    size_t named = 0;
    for (const ops::Parameter& parameter : parameters)
      named += parameter.is(ops::kList) ? execute.lists[list++] : 1;
    if (named != operands) return "the lengths of an op's lists do not fit its operands";
  }
  return nullptr;
}

const char* GetAttribute(Reader& reader, ops::AttributeType type, std::vector<ops::Number>& to) {
  uint64_t count = 1;
  if (ops::IsList(type)) {
    if (!reader.Get(count)) return "a command ends inside an attribute";
    if (count > kMaxCommandBytes / sizeof(uint64_t)) return "a list of numbers is too long";
    to.push_back(ops::Number::Integer(static_cast<int64_t>(count)));
  }
  for (uint64_t i = 0; i < count; ++i) {
    ops::Number number;
    number.is_integer = !ops::IsReal(type);
    if (!reader.Get(number.integer)) return "a command ends inside an attribute";
    to.push_back(number);
  }
  if (type == ops::AttributeType::kBool) to.back().integer = to.back().integer != 0 ? 1 : 0;
  const bool known =
      type != ops::AttributeType::kDType ||
      (to.back().integer >> 8 == 0 && ops::IsValid(static_cast<ops::DType>(to.back().integer)));
  return known ? nullptr : "an attribute has an unknown dtype";
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

absl::Status DecodeRange(std::span<const std::byte> bytes, std::string_view& name) {
  RangeCommand command;
  if (bytes.size() < sizeof(command)) return Broken("a command's size does not fit its kind");
  std::memcpy(&command, bytes.data(), sizeof(command));
  if (command.reserved != 0) return Broken("reserved bytes of a command are not zero");
  if (command.bytes > kMaxRangeName || bytes.size() != sizeof(command) + PadTo8(command.bytes))
    return Broken("a range's name does not fit its command");
  name = {reinterpret_cast<const char*>(bytes.data()) + sizeof(command), command.bytes};
  return absl::OkStatus();
}

absl::Status DecodeDefineKernel(std::span<const std::byte> bytes, DefineKernelCommand& command,
                                std::string_view& kernel, std::string_view& name) {
  if (bytes.size() < sizeof(command)) return Broken("a command's size does not fit its kind");
  std::memcpy(&command, bytes.data(), sizeof(command));
  if (command.reserved != 0) return Broken("reserved bytes of a command are not zero");
  if (command.name_bytes > kMaxKernelName || command.bytes > kMaxCommandBytes ||
      bytes.size() != sizeof(command) + PadTo8(size_t{command.bytes} + command.name_bytes))
    return Broken("a loop kernel's definition does not fit its command");
  const char* const at = reinterpret_cast<const char*>(bytes.data()) + sizeof(command);
  kernel = {at, command.bytes};
  name = {at + command.bytes, command.name_bytes};
  return absl::OkStatus();
}

absl::Status DecodePrepareKernel(std::span<const std::byte> bytes, DecodedPrepare& prepare) {
  Reader reader(bytes);
  PrepareKernelCommand command;
  if (!reader.Get(command)) return Broken("a command's size does not fit its kind");
  prepare.kernel = command.kernel;
  for (const auto& [numbers, count] :
       {std::pair(&prepare.sizes, command.sizes), {&prepare.elements, command.operands}}) {
    const size_t size = count * sizeof(int64_t);
    const std::byte* const at = reader.Take(size);
    if (at == nullptr) return Broken("a command ends inside the sizes of a loop kernel's call");
    numbers->resize(count);
    if (count > 0) std::memcpy(numbers->data(), at, size);
  }
  for (const int64_t elements : prepare.elements)
    if (static_cast<uint64_t>(elements) > kMaxElements) return Broken("an operand has too many elements");
  return !reader.AtEnd() ? Broken("bytes trail the sizes of a loop kernel's call") : absl::OkStatus();
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
  if (command.reserved != 0) return Broken("reserved bytes of a command are not zero");
  execute.outputs = command.outputs;
  execute.inputs = command.inputs;
  const size_t operands = size_t{execute.outputs} + execute.inputs;
  if (operands > ops::kMaxOperands) return Broken("an op has too many operands");
  if (execute.operands.size() < operands) execute.operands.resize(operands);
  const ops::FamilyDescriptor& family = ops::DescriptorOf(*execute.row);
  execute.lists.clear();
  if (const char* const wrong = family.lists > 0 ? GetLists(reader, family, execute) : nullptr)
    return Broken(wrong);
  for (size_t i = 0; i < operands; ++i)
    if (const char* const wrong = GetOperand(reader, execute.operands[i])) return Broken(wrong);
  execute.attributes.clear();
  for (const ops::Attribute& attribute : family.attributes)
    if (const char* const wrong = GetAttribute(reader, attribute.type, execute.attributes))
      return Broken(wrong);
  return !reader.AtEnd() ? Broken("bytes trail an op") : absl::OkStatus();
}

}  // namespace xpud::wire
