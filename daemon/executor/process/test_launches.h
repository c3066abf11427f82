// For tests: launches as they lie in the ring.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "daemon/executor/process/messages.h"

namespace xpud::executor::process {

class TestLaunches {
 public:
  TestLaunches& Add(uint32_t kernel, uint64_t argument = 0, uint32_t groups = 1, uint32_t queue = 0,
                    uint64_t ideal_ns = 0) {
    Message& message = AddMessage(MessageKind::kLaunch, queue, 2 * sizeof(Message));
    message.kernel = kernel;
    message.launch = {{groups, 1, 1}, {32, 1, 1}, 8, 1, ideal_ns};
    reinterpret_cast<uint64_t*>(&message + 1)[0] = argument;
    return *this;
  }
  TestLaunches& AddWrite(uint32_t queue = 0) {
    AddMessage(MessageKind::kWriteValue, queue, sizeof(Message));
    return *this;
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(messages_)); }

 private:
  Message& AddMessage(MessageKind kind, uint32_t queue, size_t bytes) {
    const size_t at = messages_.size();
    messages_.resize(at + bytes / sizeof(Message));
    messages_[at].bytes = static_cast<uint32_t>(bytes);
    messages_[at].kind = kind;
    messages_[at].queue = queue;
    return messages_[at];
  }

  std::vector<Message> messages_;
};

}  // namespace xpud::executor::process
