#include "daemon/stream/rerun.h"

#include <array>

#include "proto/base/status_macros.h"
#include "proto/ops/family.h"

namespace xpud::stream {
namespace {

using executor::MemoryUse;
using handles::Buffer;

// Of devices whose work never runs again.
class NoRerun final : public Rerun {
 public:
  absl::Status Prepare(Queue&, const CheckedOp&, uint64_t) override { return absl::OkStatus(); }
  absl::Status PrepareWrite(Queue&, const Buffer&) override { return absl::OkStatus(); }
  uint64_t ReuseFence(const Queue&) const override { return UINT64_MAX; }
};

class GuardedRerun final : public Rerun {
 public:
  absl::Status Prepare(Queue& queue, const CheckedOp& op, uint64_t sequence) override {
    RETURN_IF_ERROR(GuardOutputs(queue, op, sequence));
    RecordUses(op, sequence);
    return absl::OkStatus();
  }
  absl::Status PrepareWrite(Queue& queue, const Buffer& buffer) override {
    const uint64_t fenced = queue.completion->fenced();
    const bool overwrites =
        buffer.allocation().written && buffer.last_write <= fenced && buffer.last_read > fenced;
    return overwrites || Updates(queue) ? queue.completion->Fence() : absl::OkStatus();
  }
  uint64_t ReuseFence(const Queue& queue) const override { return queue.completion->fenced(); }

 private:
  // Whether the last command of the queue updated memory in place, and no fence followed.
  bool Updates(const Queue& queue) const {
    const Last& last = last_[queue.id];
    return last.updates && last.fenced == queue.completion->fenced();
  }
  absl::Status GuardOutputs(Queue& queue, const CheckedOp& op, uint64_t sequence);
  void RecordUses(const CheckedOp& op, uint64_t sequence);

  struct Last {
    bool updates = false;
    uint64_t fenced = 0;
  };
  std::array<Last, wire::kMaxQueues> last_{};
};

absl::Status GuardedRerun::GuardOutputs(Queue& queue, const CheckedOp& op, uint64_t sequence) {
  const uint64_t fenced = queue.completion->fenced();
  bool overwrites = false, updates = false;
  for (uint32_t k = op.outputs; k < op.count(); ++k) {
    if (op.buffers[k] != nullptr) op.buffers[k]->input_of = sequence;
  }
  for (uint32_t i = 0; i < op.outputs; ++i) {
    if (op.buffers[i] == nullptr) continue;
    const Buffer& output = *op.buffers[i];
    if (!output.allocation().written || output.last_write > fenced) continue;
    overwrites |= output.last_read > fenced;
    updates |= ops::IsUpdated(op.call, i) || output.input_of == sequence;
  }
  if (overwrites || updates != Updates(queue)) RETURN_IF_ERROR(queue.completion->Fence());
  last_[queue.id] = {updates, queue.completion->fenced()};
  return absl::OkStatus();
}

void GuardedRerun::RecordUses(const CheckedOp& op, uint64_t sequence) {
  uses_.clear();
  for (uint32_t i = 0; i < op.count(); ++i) {
    Buffer* const buffer = op.buffers[i];
    const kernels::Operand& operand = op.operands[i];
    if (buffer == nullptr) continue;
    uint64_t extent = 1;
    for (int d = 0; d < operand.rank; ++d)
      extent += static_cast<uint64_t>((operand.sizes[d] - 1) * operand.strides[d]);
    const auto elements = static_cast<uint64_t>(operand.numel());
    if (elements == 0) continue;
    MemoryUse use;
    use.address = reinterpret_cast<uint64_t>(operand.data);
    use.bytes = extent * ops::SizeOf(operand.dtype);
    const bool output = i < op.outputs;
    if (!output || ops::IsUpdated(op.call, i)) {
      use.kind = MemoryUse::Kind::kRead;
      uses_.push_back(use);
      buffer->last_read = sequence;
    }
    if (!output) continue;
    use.kind = elements >= extent ? MemoryUse::Kind::kWrite : MemoryUse::Kind::kWritePart;
    uses_.push_back(use);
  }
}

}  // namespace

std::unique_ptr<Rerun> Rerun::Create(bool replaceable) {
  if (replaceable) return std::make_unique<GuardedRerun>();
  return std::make_unique<NoRerun>();
}

}  // namespace xpud::stream
