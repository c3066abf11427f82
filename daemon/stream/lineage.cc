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

void Lineage::AddOperand(const CheckedOp& op, uint32_t i) {
  Buffer* const buffer = op.buffers[i];
  if (buffer == nullptr) return;
  const bool output = i < op.outputs;
  const kernels::Operand& operand = op.operands[i];
  const uint64_t bytes = static_cast<uint64_t>(operand.numel()) * ops::SizeOf(operand.dtype);
  Add({.buffer = buffer,
       .generation = buffer->generation,
       .reads = !output || ops::IsUpdated(op.call, i),
       .writes = output,
       .fills = output && bytes == buffer->bytes,
       .updates = output && buffer->allocation.written});
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
  if (source != nullptr) Add({source, source->generation, true, false, false, false});
  Add({&target, target.generation, false, true, fills, target.allocation.written});
}

void Lineage::Spoil(uint64_t sequence, memory::Fault fault) {
  // By buffer and generation: whether the contents from before the bad command are still there.
  absl::flat_hash_map<std::pair<Buffer*, uint32_t>, bool> spoilt;
  auto use = uses_.begin();
  for (const Part& part : parts_) {
    const auto end = use + part.uses;
    bool bad = part.sequence == sequence;
    for (auto at = use; at != end && part.sequence > sequence; ++at)
      bad |= at->reads && spoilt.contains({at->buffer, at->generation});
    for (; use != end; ++use) {
      if (!use->writes) continue;
      const std::pair key(use->buffer, use->generation);
      if (bad) {
        spoilt.insert_or_assign(key, part.sequence == sequence && use->updates);
      } else if (use->fills) {
        spoilt.erase(key);
      }
    }
  }
  for (const auto& [key, updated] : spoilt) {
    const auto& [buffer, generation] = key;
    if (buffer->generation != generation) continue;
    if (updated) {
      buffers_.PoisonSkipped(buffer->allocation, fault);
    } else {
      buffer->allocation.SetPoison(memory::Poison::kFresh, fault);
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
