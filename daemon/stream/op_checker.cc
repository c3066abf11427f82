#include "daemon/stream/op_checker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/check.h"
#include "proto/ops/families/loop.h"

namespace xpud::stream {
namespace {

using handles::Buffer;
using memory::Poison;

// Takes a view's sizes and strides, and counts the elements between its first and last one, or 0 for an empty
// view. Returns whether that is a number. Goes through the dimensions in the order in which they were
// written: reading two at once would wait for the writes.
bool TakeView(const wire::DecodedOperand& from, kernels::Operand& to, uint64_t& elements) {
  elements = 1;
  bool empty = false, fits = true;
  to.rank = from.rank;
  for (int d = 0; d < from.rank; ++d) {
    const int64_t size = to.sizes[d] = from.sizes[d], stride = to.strides[d] = from.strides[d];
    uint64_t span;
    empty |= size == 0;
    fits &= !__builtin_mul_overflow(static_cast<uint64_t>(size - 1), static_cast<uint64_t>(stride), &span) &&
            !__builtin_add_overflow(elements, span, &elements);
  }
  if (empty) elements = 0;
  return fits || empty;
}

// Whether the buffer has fewer than `elements` from the view's offset on.
bool Leaves(const Buffer& buffer, const wire::DecodedOperand& view, uint64_t elements) {
  uint64_t end;
  return __builtin_add_overflow(view.offset, elements, &end) ||
         __builtin_mul_overflow(end, ops::SizeOf(view.dtype), &end) || end > buffer.bytes;
}

absl::Status TooLarge(const wire::DecodedOperand& view, uint64_t memory) {
  return absl::InvalidArgumentError(absl::StrCat("a view of ", view.bytes / ops::SizeOf(view.dtype),
                                                 " elements would take more than the ", memory,
                                                 " bytes that its device has"));
}

}  // namespace

absl::Status OpChecker::ResolveTensor(const wire::DecodedOperand& from, kernels::Operand& to, Buffer*& buffer,
                                      uint32_t queue) {
  buffer = buffers_.Find(from.buffer);
  if (buffer == nullptr) return absl::InvalidArgumentError("a tensor names a buffer that does not exist");
  uint64_t elements;
  if (!TakeView(from, to, elements) || (elements != 0 && Leaves(*buffer, from, elements))) {
    return absl::InvalidArgumentError(absl::StrCat("a view of ", elements, " elements from element ",
                                                   from.offset, " leaves its buffer of ", buffer->bytes,
                                                   " bytes"));
  }
  // Views with small strides repeat their elements, so the buffer does not bound them.
  const uint64_t memory = state_.pool->ledger().capacity();
  if (elements != 0 && from.bytes > memory) return TooLarge(from, memory);
  buffer->queues |= uint64_t{1} << queue;
  const memory::Allocation& allocation = buffer->allocation();
  // Without storage nothing is read: see ReadsPoison.
  const bool starts_behind = elements != 0 && allocation.poison != Poison::kNoStorage;
  to.data = allocation.block.address + (starts_behind ? from.offset * ops::SizeOf(from.dtype) : 0);
  to.content = allocation.content;
  return absl::OkStatus();
}

absl::Status OpChecker::Resolve(const DecodedOp& decoded, uint32_t queue, CheckedOp& op) {
  absl::Status first;
  op.skipped.clear();
  op.outputs = decoded.outputs;
  op.inputs = ops::DescriptorOf(*decoded.row).lists > 0 ? decoded.inputs : decoded.row->inputs;
  if (decoded.inputs > op.inputs)
    first = absl::InvalidArgumentError(
        absl::StrCat(decoded.inputs, " inputs; at most ", op.inputs, " are allowed"));
  if (const size_t most = op.outputs + std::max(op.inputs, decoded.inputs); op.operands.size() < most) {
    op.operands.resize(most);
    op.buffers.resize(most);
  }
  // Not through the vectors: the writes below might change these, for all that the compiler knows.
  kernels::Operand* const operands = op.operands.data();
  Buffer** const buffers = op.buffers.data();
  const uint32_t count = op.count(), sent = decoded.outputs + decoded.inputs;
  for (uint32_t i = 0; i < count; ++i) {
    kernels::Operand& to = operands[i];
    buffers[i] = nullptr;
    to.data = nullptr;
    to.rank = 0;
    to.content = 0;
    to.immediate = false;
    to.present = false;
    if (i >= sent) continue;
    const wire::DecodedOperand& from = decoded.operands[i];
    to.dtype = from.dtype;
    to.present = from.kind != wire::OperandKind::kAbsent;
    to.immediate = from.kind == wire::OperandKind::kInteger || from.kind == wire::OperandKind::kReal;
    if (to.immediate) to.number = from.number;
    if (from.kind != wire::OperandKind::kTensor) continue;
    absl::Status status = ResolveTensor(from, to, buffers[i], queue);
    if (!status.ok() && first.ok()) first = std::move(status);  // continues: the outputs must be found
  }
  op.call.row = decoded.row;
  op.call.compute = decoded.compute;
  op.call.outputs = {operands, op.outputs};
  op.call.inputs = {operands + op.outputs, op.inputs};
  op.call.attributes = decoded.attributes;
  op.call.lists = decoded.lists;
  op.call.kernel = nullptr;
  return first;
}

absl::Status OpChecker::FindKernel(kernels::OpCall& call) const {
  const int64_t id = ops::Read<ops::LoopCall>(call).kernel;
  const handles::KernelTable::Kernel* const kernel = kernels_.Find(id);
  if (kernel == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("loop kernel ", id, " is not defined"));
  call.kernel = &kernel->named;
  RETURN_IF_ERROR(kernel->refusal);
  ASSIGN_OR_RETURN(call.kernel, kernel->calls->Find(call));
  return absl::OkStatus();
}

absl::Status OpChecker::Check(CheckedOp& op) const {
  RETURN_IF_ERROR(ops::CheckCall(op.call));
  if (ops::DescriptorOf(*op.call.row).runs_kernel) RETURN_IF_ERROR(FindKernel(op.call));
  // Memory does not bound what an op computes: attention does more the longer its sequences are, and views
  // repeat elements. Where no executor process can be ended, an op computes for minutes at most.
  constexpr double kMaxOperations = 0x1p43;
  if (state_.device->properties().replaceable || ops::CostOf(op.call) <= kMaxOperations)
    return absl::OkStatus();
  return absl::InvalidArgumentError("it would take more than 2^43 operations, the most of one command");
}

}  // namespace xpud::stream
