// Writes commands into bytes that the caller reserved on its ring. Any thread; no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "proto/ops/op_call.h"
#include "proto/wire/commands.h"

namespace xpud::wire {

constexpr CommandHeader Header(CommandKind kind, uint32_t queue, size_t bytes) {
  return {static_cast<uint32_t>(bytes), kind, 0, static_cast<uint16_t>(queue)};
}

inline Handle ToWire(BufferHandle handle) { return {handle.id, handle.generation}; }

// Refuses what the wire cannot carry: too many operands or attributes, ranks over kMaxRank, negative sizes or
// strides, offsets that are no multiple of the element size.
absl::Status CheckEncodable(const OpCall& call);

// The bytes that EncodeExecute will write: a multiple of 8, at most kMaxCommandBytes for an encodable call.
size_t ExecuteBytes(const OpCall& call);

// Writes `call` at `out`, ExecuteBytes(call) of it.
void EncodeExecute(const OpCall& call, uint32_t queue, std::byte* out);

}  // namespace xpud::wire
