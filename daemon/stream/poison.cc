#include "daemon/stream/poison.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/ops/family.h"

namespace xpud::stream {
namespace {

using handles::Buffer;
using memory::Allocation;
using memory::Poison;

bool IsPoisonRead(const CheckedOp& op, uint32_t i) {
  const Buffer* const buffer = op.buffers[i];
  if (buffer == nullptr || buffer->allocation().poison == Poison::kNone) return false;
  if (buffer->allocation().poison == Poison::kNoStorage || i >= op.outputs) return true;
  if (ops::IsUpdated(op.call, i)) return true;
  // An output that does not fill its buffer leaves the poisoned rest.
  const kernels::Operand& operand = op.operands[i];
  return static_cast<uint64_t>(operand.numel()) * ops::SizeOf(operand.dtype) != buffer->bytes;
}

// The corresponding lists of a call.
class Elements {
 public:
  explicit Elements(CheckedOp& op) : op_(op), count_(op.call.lists[0]) {
    op.lists.assign(op.call.lists.begin(), op.call.lists.end());
  }

  // Returns whether an operand that serves all elements is poisoned.
  bool AllRead() const {
    bool reads = count_ == 1;  // and the op reads poison
    ForEachList([&](uint32_t begin, uint16_t length) { reads |= length == 1 && IsPoisonRead(op_, begin); });
    return reads;
  }
  // Returns the poison that the element reads, or nullptr.
  const Allocation* Reads(uint32_t element) const {
    const Allocation* read = nullptr;
    ForEachList([&](uint32_t begin, uint16_t length) {
      if (length == count_ && IsPoisonRead(op_, begin + element))
        read = &op_.buffers[begin + element]->allocation();
    });
    return read;
  }
  void PoisonOutputs(uint32_t element, handles::BufferTable& buffers, memory::Fault fault) {
    ForEachList([&](uint32_t begin, uint16_t length) {
      if (begin >= op_.outputs || length != count_) return;
      Allocation& output = op_.buffers[begin + element]->allocation();
      buffers.PoisonSkipped(output, fault);
      op_.skipped.emplace_back(&output, fault);
    });
  }
  void Remove(const std::vector<bool>& removed);

 private:
  template <typename Visit>
  void ForEachList(Visit visit) const {
    uint32_t begin = 0;
    for (const uint16_t length : op_.call.lists) {
      if (length > 0) visit(begin, length);
      begin += length;
    }
  }

  CheckedOp& op_;
  const uint16_t count_;
};

void Elements::Remove(const std::vector<bool>& removed) {
  uint32_t to = 0, outputs = 0;
  size_t list = 0;
  for (uint32_t begin = 0; list < op_.lists.size(); ++list) {
    const uint16_t length = op_.call.lists[list];
    const uint32_t first = to;
    for (uint32_t i = 0; i < length; ++i) {
      if (length == count_ && removed[i]) continue;
      op_.operands[to] = op_.operands[begin + i];
      op_.buffers[to++] = op_.buffers[begin + i];
    }
    op_.lists[list] = static_cast<uint16_t>(to - first);
    begin += length;
    if (begin <= op_.outputs) outputs = to;
  }
  op_.outputs = outputs;
  op_.inputs = to - outputs;
  op_.call.outputs = {op_.operands.data(), op_.outputs};
  op_.call.inputs = {op_.operands.data() + op_.outputs, op_.inputs};
  op_.call.lists = op_.lists;
}

}  // namespace

const Allocation* FindPoison(const CheckedOp& op) {
  for (uint32_t i = 0; i < op.count(); ++i)
    if (IsPoisonRead(op, i)) return &op.buffers[i]->allocation();
  return nullptr;
}

memory::Fault RaisePoison(QueueErrors& errors, const handles::BufferTable& buffers, uint32_t queue,
                          uint64_t sequence, const Allocation& poisoned) {
  const memory::SharedAllocation* const of_another = buffers.PoisonedByAnother(poisoned);
  if (of_another == nullptr) [[likely]]
    return errors.RaiseAgain(queue, sequence, poisoned.fault());
  const absl::Status& error = of_another->error;
  return errors.Raise(
      queue, sequence,
      absl::Status(error.code(),
                   absl::StrCat("a command reads memory that another process shares, and whose computation "
                                "failed there: ",
                                error.message())));
}

bool SkipPoisonedElements(CheckedOp& op, handles::BufferTable& buffers, memory::Fault fault) {
  if (!ops::DescriptorOf(*op.call.row).lists_correspond) return false;
  Elements elements(op);
  if (elements.AllRead()) return false;
  const uint32_t count = op.call.lists[0];
  std::vector<bool> removed(count);
  uint32_t remaining = count;
  for (uint32_t i = 0; i < count; ++i) {
    const Allocation* const read = elements.Reads(i);
    removed[i] = read != nullptr;
    if (!removed[i]) continue;
    // A later element may read them.
    elements.PoisonOutputs(
        i, buffers, {buffers.PoisonedByAnother(*read) != nullptr ? fault.cause : read->cause, fault.queue});
    --remaining;
  }
  if (remaining == 0) return false;
  elements.Remove(removed);
  return true;
}

}  // namespace xpud::stream
