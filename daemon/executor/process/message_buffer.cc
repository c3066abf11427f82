#include "daemon/executor/process/message_buffer.h"

#include <algorithm>

namespace xpud::executor::process {

Message& MessageBuffer::Add(MessageKind kind, uint32_t queue, size_t payload) {
  const size_t at = bytes_.size();
  const size_t bytes =
      (sizeof(Message) + payload + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
  bytes_.resize(at + bytes);
  auto& message = *reinterpret_cast<Message*>(bytes_.data() + at);
  message = {};
  message.bytes = static_cast<uint32_t>(bytes);
  message.kind = kind;
  message.queue = queue;
  return message;
}

Message& MessageBuffer::Add(MessageKind kind, uint32_t queue, std::span<const std::byte> payload) {
  Message& message = Add(kind, queue, payload.size());
  std::copy(payload.begin(), payload.end(), PayloadOf(message));
  return message;
}

}  // namespace xpud::executor::process
