// Builds messages one after another in reused memory. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/executor/process/messages.h"

namespace xpud::executor::process {

class MessageBuffer {
 public:
  // Adds a message that is zero except for its header, with space for `payload` bytes after it. Valid until
  // the next Add.
  Message& Add(MessageKind kind, uint32_t queue = 0, size_t payload = 0);
  // Adds a message with this payload.
  Message& Add(MessageKind kind, uint32_t queue, std::span<const std::byte> payload);
  Message& Add(MessageKind kind, uint32_t queue, std::string_view payload) {
    return Add(kind, queue, std::as_bytes(std::span(payload)));
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  void Clear() { bytes_.clear(); }

 private:
  std::vector<std::byte> bytes_;
};

// The bytes after a message.
inline std::byte* PayloadOf(Message& message) {
  return reinterpret_cast<std::byte*>(&message) + sizeof(Message);
}
inline const std::byte* PayloadOf(const Message& message) {
  return reinterpret_cast<const std::byte*>(&message) + sizeof(Message);
}

}  // namespace xpud::executor::process
