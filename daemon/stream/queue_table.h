// The queues of one session on one device. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>

#include "daemon/executor/api/device_queue.h"
#include "daemon/stream/completion.h"
#include "proto/wire/commands.h"

namespace xpud::stream {

struct Queue {
  uint32_t id = 0;
  std::unique_ptr<executor::DeviceQueue> device;
  std::unique_ptr<Completion> completion;  // destroyed first
};

class QueueTable {
 public:
  QueueTable() {
    for (uint32_t q = 0; q < wire::kMaxQueues; ++q) queues_[q].id = q;
  }

  Queue& operator[](uint32_t id) { return queues_[id]; }
  const Queue& operator[](uint32_t id) const { return queues_[id]; }
  bool IsOpen(uint32_t id) const { return id < wire::kMaxQueues && (open_ >> id & 1) != 0; }
  // Returns nullptr if there is no such queue.
  Queue* Find(uint32_t id) { return IsOpen(id) ? &queues_[id] : nullptr; }
  uint64_t open() const { return open_; }  // bit q
  int count() const { return std::popcount(open_); }
  void Open(uint32_t id, std::unique_ptr<executor::DeviceQueue> device, const Completion::Context& context) {
    Queue& queue = queues_[id];
    queue.device = std::move(device);
    queue.completion = Completion::Create(context, *queue.device, id);
    open_ |= uint64_t{1} << id;
  }
  // REQUIRES: as ~DeviceQueue.
  void Close(uint32_t id) {
    Queue& queue = queues_[id];
    queue.device.reset();  // first: after an error it may still work
    queue.completion->FreeRetired();
    queue.completion.reset();
    open_ &= ~(uint64_t{1} << id);
  }
  // Calls `visit` for the open queues of the mask.
  template <typename Visit>
  void ForEach(uint64_t mask, Visit visit) {
    for (uint64_t rest = mask & open_; rest != 0; rest &= rest - 1)
      visit(queues_[static_cast<uint32_t>(std::countr_zero(rest))]);
  }

 private:
  std::array<Queue, wire::kMaxQueues> queues_;
  uint64_t open_ = 0;
};

}  // namespace xpud::stream
