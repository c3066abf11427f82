// What the commands in flight on a queue of an asynchronous device read and write, noted while one of them
// may still report a bad index. Once it does, the buffers that the device has computed from its outputs are
// found and poisoned. Other queues need no notes: a command that waits for this queue is not sent before the
// report. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "daemon/handles/buffer_table.h"
#include "daemon/stream/op.h"

namespace xpud::stream {

class Lineage {
 public:
  // `notes`: counts those of all queues of a device session, of which there are at most kMaxNotes before the
  // next command.
  Lineage(handles::BufferTable& buffers, uint64_t& notes) : buffers_(buffers), notes_(notes) {}
  ~Lineage() { Forget(UINT64_MAX); }
  Lineage(const Lineage&) = delete;
  Lineage& operator=(const Lineage&) = delete;

  static constexpr uint64_t kMaxNotes = 1 << 16;  // 1 MiB
  bool is_full() const { return notes_ >= kMaxNotes; }

  // Command `sequence` was sent. REQUIRES: its outputs are not marked as written yet.
  void Note(uint64_t sequence, const CheckedOp& op);
  // A copy was sent; `fills`: it writes every byte of its target. A null source is host memory.
  void NoteCopy(uint64_t sequence, handles::Buffer* source, handles::Buffer& target, bool fills);
  // A part of `source` was lent: `contents` stands for it until the queue has passed the command.
  void NoteLend(uint64_t sequence, handles::Buffer& source, memory::SharedAllocation& contents);
  // The buffer names shared memory from now on.
  void BecameShared(const handles::Buffer& buffer);
  // Command `sequence` had a bad index: poisons what it wrote, and what later commands made of that.
  void Spoil(uint64_t sequence, memory::Fault fault);
  // The device has completed `done`, and has reported.
  void Forget(uint64_t done);

 private:
  struct Use {
    // A handles::Buffer, which does not move, but may be another one's by now; or, with generation 0, a
    // memory::SharedAllocation, which stays until the queue has passed its last use.
    void* memory;
    uint32_t generation;
    bool reads : 1, writes : 1;
    bool fills : 1;    // every byte
    bool updates : 1;  // its old contents are in use too
  };
  static_assert(sizeof(Use) == 16);
  // A command, or an element of its corresponding lists.
  struct Part {
    uint64_t sequence;
    uint32_t uses;
  };

  void NoteElements(uint64_t sequence, const CheckedOp& op);
  // Adds operand `i` to the last part.
  void AddOperand(const CheckedOp& op, uint32_t i);
  void Add(const Use& use);
  static Use UseOf(handles::Buffer& buffer);

  handles::BufferTable& buffers_;
  uint64_t& notes_;
  std::deque<Part> parts_;  // by sequence
  std::deque<Use> uses_;    // of the parts, in order
};

}  // namespace xpud::stream
