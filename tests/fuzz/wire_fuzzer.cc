// Commands of a ring, parsed as in the daemon: each is decoded, and a valid op is encoded again, which must
// give the same op.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "proto/base/check.h"
#include "proto/wire/decode.h"
#include "proto/wire/encode.h"
#include "tests/fuzz/bytes.h"

namespace xpud::fuzz {
namespace {

using wire::CommandKind;
using wire::DecodedExecute;
using wire::DecodedOperand;
using wire::OperandKind;

TensorRef RefOf(const DecodedOperand& operand) {
  if (operand.kind == OperandKind::kAbsent) return {};
  if (operand.kind != OperandKind::kTensor) return TensorRef::FromNumber(operand.number, operand.dtype);
  TensorRef ref;
  ref.kind = TensorRef::Kind::kTensor;
  ref.dtype = operand.dtype;
  ref.rank = operand.rank;
  ref.buffer = {operand.buffer.id, operand.buffer.generation};
  ref.offset = operand.offset * ops::SizeOf(operand.dtype);
  ref.sizes = operand.sizes.data();
  ref.strides = operand.strides.data();
  return ref;
}

bool SameNumber(const ops::Number& a, const ops::Number& b) {
  return a.is_integer == b.is_integer && a.integer == b.integer;  // compares bits, so that NaN equals itself
}

// Strides of a tensor without elements, or of a dimension of size 1, have no meaning; they are not sent if
// the others are contiguous.
bool SameDims(const DecodedOperand& a, const DecodedOperand& b) {
  if (!std::equal(a.sizes.begin(), a.sizes.begin() + a.rank, b.sizes.begin())) return false;
  if (std::find(a.sizes.begin(), a.sizes.begin() + a.rank, 0) != a.sizes.begin() + a.rank) return true;
  for (int d = 0; d < a.rank; ++d) {
    if (a.sizes[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

bool SameOperand(const DecodedOperand& a, const DecodedOperand& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == OperandKind::kAbsent) return true;
  if (a.dtype != b.dtype) return false;
  if (a.kind != OperandKind::kTensor) return SameNumber(a.number, b.number);
  return a.rank == b.rank && a.buffer.id == b.buffer.id && a.buffer.generation == b.buffer.generation &&
         a.offset == b.offset && SameDims(a, b);
}

void CheckSame(const DecodedExecute& a, const DecodedExecute& b) {
  XPUD_CHECK(a.row == b.row && a.compute == b.compute && a.outputs == b.outputs && a.inputs == b.inputs &&
             a.attributes.size() == b.attributes.size() && a.lists == b.lists);
  for (size_t i = 0; i < a.outputs + a.inputs; ++i) XPUD_CHECK(SameOperand(a.operands[i], b.operands[i]));
  for (size_t i = 0; i < a.attributes.size(); ++i) XPUD_CHECK(SameNumber(a.attributes[i], b.attributes[i]));
}

// Copies with exactly their size, so that ASan reports a read beyond the end.
std::vector<std::byte> Copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

void Reencode(const DecodedExecute& decoded, uint32_t queue) {
  std::vector<TensorRef> operands;
  for (size_t i = 0; i < decoded.outputs + decoded.inputs; ++i)
    operands.push_back(RefOf(decoded.operands[i]));
  const OpCall call = {decoded.row,
                       decoded.compute,
                       {operands.data(), decoded.outputs},
                       {operands.data() + decoded.outputs, decoded.inputs},
                       decoded.attributes,
                       decoded.lists};
  const absl::StatusOr<size_t> bytes = wire::ExecuteBytes(call);
  XPUD_CHECK(bytes.ok());
  std::vector<std::byte> encoded(*bytes);
  XPUD_CHECK(encoded.size() <= wire::kMaxCommandBytes && encoded.size() % 8 == 0);
  wire::EncodeExecute(call, queue, encoded.data());
  wire::CommandHeader header;
  XPUD_CHECK(wire::DecodeHeader(encoded, header).ok());
  XPUD_CHECK(header.kind == CommandKind::kExecute && header.queue == queue && header.bytes == encoded.size());
  const auto again = std::make_unique<DecodedExecute>();
  XPUD_CHECK(wire::DecodeExecute(encoded, *again).ok());
  CheckSame(decoded, *again);
}

void DecodeOp(std::span<const std::byte> bytes, uint32_t queue) {
  const auto decoded = std::make_unique<DecodedExecute>();
  if (wire::DecodeExecute(bytes, *decoded).ok()) Reencode(*decoded, queue);
}

void DecodePayload(std::span<const std::byte> bytes) {
  wire::UploadInlineCommand command;
  std::span<const std::byte> payload;
  if (!wire::DecodeUploadInline(bytes, command, payload).ok()) return;
  XPUD_CHECK(payload.size() == command.bytes && payload.size() <= wire::kMaxInlineUploadBytes);
  XPUD_CHECK(payload.empty() || (payload.data() >= bytes.data() &&
                                 payload.data() + payload.size() <= bytes.data() + bytes.size()));
}

void DecodeName(std::span<const std::byte> bytes) {
  std::string_view name;
  if (!wire::DecodeRange(bytes, name).ok()) return;
  XPUD_CHECK(name.size() <= wire::kMaxRangeName);
  XPUD_CHECK(bytes.size() == sizeof(wire::RangeCommand) + wire::PadTo8(static_cast<uint32_t>(name.size())));
}

void DecodeKernel(std::span<const std::byte> bytes) {
  wire::DefineKernelCommand command;
  std::string_view kernel, name;
  if (!wire::DecodeDefineKernel(bytes, command, kernel, name).ok()) return;
  XPUD_CHECK(kernel.size() == command.bytes && name.size() <= wire::kMaxKernelName);
  XPUD_CHECK(*wire::DefineKernelBytes(bytes.subspan(sizeof(command), kernel.size()), name) == bytes.size());
}

void DecodePrepare(std::span<const std::byte> bytes, uint32_t queue) {
  static wire::DecodedPrepare prepare;
  if (!wire::DecodePrepareKernel(bytes, prepare).ok()) return;
  for (const int64_t elements : prepare.elements) XPUD_CHECK(elements >= 0);
  std::vector<std::byte> again(*wire::PrepareKernelBytes(prepare.sizes, prepare.elements));
  wire::EncodePrepareKernel(prepare.kernel, prepare.sizes, prepare.elements, queue, again.data());
  XPUD_CHECK(std::ranges::equal(again, bytes));
}

template <typename Command>
void Decode(std::span<const std::byte> bytes) {
  Command command;
  XPUD_CHECK(wire::DecodeFixed(bytes, command).ok() == (bytes.size() == sizeof(command)));
}

void DecodeCommand(std::span<const std::byte> bytes, const wire::CommandHeader& header) {
  switch (header.kind) {
    case CommandKind::kExecute:
      return DecodeOp(bytes, header.queue);
    case CommandKind::kUploadInline:
      return DecodePayload(bytes);
    case CommandKind::kRange:
      return DecodeName(bytes);
    case CommandKind::kDefineKernel:
      return DecodeKernel(bytes);
    case CommandKind::kPrepareKernel:
      return DecodePrepare(bytes, header.queue);
    case CommandKind::kUpload:
      return Decode<wire::UploadCommand>(bytes);
    case CommandKind::kShare:
      return Decode<wire::ShareCommand>(bytes);
    case CommandKind::kAttach:
      return Decode<wire::AttachCommand>(bytes);
    case CommandKind::kLend:
      return Decode<wire::LendCommand>(bytes);
    case CommandKind::kCopyFrom:
      return Decode<wire::CopyFromCommand>(bytes);
    case CommandKind::kCopy:
      return Decode<wire::CopyCommand>(bytes);
    default:
      return Decode<wire::AllocateCommand>(bytes);
  }
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud;
  fuzz::Bytes input(data, size);
  while (input.rest().size() >= sizeof(wire::CommandHeader)) {
    wire::CommandHeader header;
    if (!wire::DecodeHeader(input.rest(), header).ok() || header.bytes > input.rest().size()) return 0;
    fuzz::DecodeCommand(fuzz::Copy(input.Take(header.bytes)), header);
  }
  return 0;
}
