// Session's part for devices whose unfinished work can be run again, after their executor was lost. Between
// two announcements of progress nobody knows how far the device came, so all commands after the last one that
// was reached run again. That gives the same results unless one of them overwrote what an earlier one, or it
// itself, had read from before the announcement; so progress is announced before such a command, and after
// the last one of a series of updates in place.
#include "daemon/session/session.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"

namespace xpud::session {

using executor::MemoryUse;

void Session::RecordUses() {
  uses_.clear();
  const bool adds = ops::DescriptorOf(*execute_.row).reads_outputs;
  for (uint32_t i = 0; i < execute_.outputs + inputs_; ++i) {
    Buffer* const buffer = operand_buffers_[i];
    const kernels::Operand& operand = operands_[i];
    if (buffer == nullptr) continue;
    uint64_t extent = 1;
    for (int d = 0; d < operand.rank; ++d)
      extent += static_cast<uint64_t>((operand.sizes[d] - 1) * operand.strides[d]);
    const auto elements = static_cast<uint64_t>(operand.numel());
    if (elements == 0) continue;
    MemoryUse use;
    use.address = reinterpret_cast<uint64_t>(operand.data);
    use.bytes = extent * ops::SizeOf(operand.dtype);
    const bool output = i < execute_.outputs;
    if (!output || adds) {
      use.kind = MemoryUse::Kind::kRead;
      uses_.push_back(use);
      buffer->last_read = sequence_ + 1;
    }
    if (!output) continue;
    use.kind = elements >= extent ? MemoryUse::Kind::kWrite : MemoryUse::Kind::kWritePart;
    uses_.push_back(use);
  }
}

absl::Status Session::GuardOutputs(uint32_t queue_id) {
  Queue& queue = queues_[queue_id];
  const bool adds = ops::DescriptorOf(*execute_.row).reads_outputs;
  bool overwrites = false, updates = false;
  for (uint32_t k = execute_.outputs; k < execute_.outputs + inputs_; ++k) {
    if (operand_buffers_[k] != nullptr) operand_buffers_[k]->input_of = sequence_ + 1;
  }
  for (uint32_t i = 0; i < execute_.outputs; ++i) {
    const Buffer* const buffer = operand_buffers_[i];
    if (buffer == nullptr || !buffer->written || buffer->last_write > queue.written) continue;
    overwrites |= buffer->last_read > queue.written;
    updates |= adds || buffer->input_of == sequence_ + 1;
  }
  if (overwrites || updates != queue.updates) RETURN_IF_ERROR(Announce(queue_id));
  queue.updates = updates;
  return absl::OkStatus();
}

absl::Status Session::GuardWrite(uint32_t queue_id, Buffer& buffer) {
  Queue& queue = queues_[queue_id];
  if (!devices_[queue.device].device->properties().replaceable) return absl::OkStatus();
  const bool overwrites =
      buffer.written && buffer.last_write <= queue.written && buffer.last_read > queue.written;
  return overwrites || queue.updates ? Announce(queue_id) : absl::OkStatus();
}

}  // namespace xpud::session
