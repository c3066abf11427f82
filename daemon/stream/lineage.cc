#include "daemon/stream/lineage.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/ops/family.h"

namespace xpud::stream {

using handles::Buffer;

void Lineage::Add(const Use& use) {
  uses_.push_back(use);
  ++parts_.back().uses;
  ++notes_;
}

Lineage::Use Lineage::UseOf(Buffer& buffer) {
  if (buffer.own.is_shared) [[unlikely]]
    return {buffer.own.block.shared, 0, false, false, false, false};
  return {&buffer, buffer.generation, false, false, false, false};
}

void Lineage::BecameShared(const Buffer& buffer) {
  for (Use& use : uses_) {
    if (use.memory != &buffer || use.generation != buffer.generation) continue;
    use.memory = buffer.own.block.shared;
    use.generation = 0;
  }
}

void Lineage::AddOperand(const CheckedOp& op, uint32_t i) {
  Buffer* const buffer = op.buffers[i];
  if (buffer == nullptr) return;
  const bool output = i < op.outputs;
  const kernels::Operand& operand = op.operands[i];
  const uint64_t bytes = static_cast<uint64_t>(operand.numel()) * ops::SizeOf(operand.dtype);
  Use use = UseOf(*buffer);
  use.reads = !output || ops::IsUpdated(op.call, i);
  use.writes = output;
  use.fills = output && bytes == buffer->bytes;
  use.updates = output && buffer->allocation().written;
  Add(use);
}

void Lineage::NoteElements(uint64_t sequence, const CheckedOp& op) {
  const uint32_t count = op.call.lists[0];
  for (uint32_t element = 0; element < count; ++element) {
    parts_.push_back({sequence, 0});
    uint32_t begin = 0;
    for (const uint16_t length : op.call.lists) {
      if (length == count) {
        AddOperand(op, begin + element);
      } else {  // it serves all elements
        for (uint32_t i = 0; i < length; ++i) AddOperand(op, begin + i);
      }
      begin += length;
    }
  }
}

void Lineage::Note(uint64_t sequence, const CheckedOp& op) {
  if (ops::DescriptorOf(*op.call.row).lists_correspond) return NoteElements(sequence, op);
  parts_.push_back({sequence, 0});
  for (uint32_t i = 0; i < op.count(); ++i) AddOperand(op, i);
}

void Lineage::NoteCopy(uint64_t sequence, Buffer* source, Buffer& target, bool fills) {
  parts_.push_back({sequence, 0});
  if (source != nullptr) {
    Use use = UseOf(*source);
    use.reads = true;
    Add(use);
  }
  Use use = UseOf(target);
  use.writes = true;
  use.fills = fills;
  use.updates = target.allocation().written;
  Add(use);
}

void Lineage::NoteLend(uint64_t sequence, Buffer& source, memory::SharedAllocation& contents) {
  parts_.push_back({sequence, 0});
  Use use = UseOf(source);
  use.reads = true;
  Add(use);
  Add({&contents, 0, /*reads=*/false, /*writes=*/true, /*fills=*/true, /*updates=*/false});
}

void Lineage::Spoil(uint64_t sequence, memory::Fault fault) {
  // By memory and generation: whether the contents from before the bad command are still there.
  absl::flat_hash_map<std::pair<void*, uint32_t>, bool> spoilt;
  auto use = uses_.begin();
  for (const Part& part : parts_) {
    const auto end = use + part.uses;
    bool bad = part.sequence == sequence;
    for (auto at = use; at != end && part.sequence > sequence; ++at)
      bad |= at->reads && spoilt.contains({at->memory, at->generation});
    for (; use != end; ++use) {
      if (!use->writes) continue;
      const std::pair key(use->memory, use->generation);
      if (bad) {
        spoilt.insert_or_assign(key, part.sequence == sequence && use->updates);
      } else if (use->fills) {
        spoilt.erase(key);
      }
    }
  }
  for (const auto& [key, updated] : spoilt) {
    const auto& [memory, generation] = key;
    memory::Allocation* allocation = nullptr;
    if (generation == 0) {
      allocation = static_cast<memory::SharedAllocation*>(memory);
    } else if (auto* const buffer = static_cast<Buffer*>(memory); buffer->generation == generation) {
      allocation = &buffer->allocation();
    }
    if (allocation == nullptr) continue;
    if (updated) {
      buffers_.PoisonSkipped(*allocation, fault);
    } else {
      buffers_.Spoil(*allocation, fault);
    }
  }
}

void Lineage::Forget(uint64_t done) {
  while (!parts_.empty() && parts_.front().sequence <= done) {
    const uint32_t uses = parts_.front().uses;
    uses_.erase(uses_.begin(), uses_.begin() + uses);
    notes_ -= uses;
    parts_.pop_front();
  }
}

}  // namespace xpud::stream
