// Writes commands into bytes that the caller reserved on its ring. Any thread; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/ops/op_call.h"
#include "proto/wire/commands.h"

namespace xpud::wire {

constexpr CommandHeader Header(CommandKind kind, uint32_t queue, size_t bytes) {
  return {static_cast<uint32_t>(bytes), kind, 0, static_cast<uint16_t>(queue)};
}

inline Handle ToWire(BufferHandle handle) { return {handle.id, handle.generation}; }

// The bytes that EncodeExecute will write: a multiple of 8, at most kMaxCommandBytes. InvalidArgument for
// what the wire cannot carry: more than ops::kMaxOperands operands, lists or attributes that do not fit the
// family's schema, ranks over kMaxRank, negative sizes or strides, offsets that are no multiple of the
// element size.
absl::StatusOr<size_t> ExecuteBytes(const OpCall& call);

// Writes `call` at `out`. REQUIRES: ExecuteBytes(call) succeeded; so many bytes.
void EncodeExecute(const OpCall& call, uint32_t queue, std::byte* out);

// The bytes that EncodeDefineKernel will write, as ExecuteBytes. InvalidArgument for a kernel of more bytes
// than a command can carry, or a name of more than kMaxKernelName.
absl::StatusOr<size_t> DefineKernelBytes(std::span<const std::byte> kernel, std::string_view name);

// Writes the definition at `out`. REQUIRES: DefineKernelBytes succeeded; so many bytes.
void EncodeDefineKernel(uint32_t id, std::span<const std::byte> kernel, std::string_view name, uint32_t queue,
                        std::byte* out);

// The same of a loop kernel's call that will follow, with its sizes and the elements of its operands.
// InvalidArgument if there are more than a command can carry.
absl::StatusOr<size_t> PrepareKernelBytes(std::span<const int64_t> sizes, std::span<const int64_t> elements);
void EncodePrepareKernel(uint32_t id, std::span<const int64_t> sizes, std::span<const int64_t> elements,
                         uint32_t queue, std::byte* out);

}  // namespace xpud::wire
