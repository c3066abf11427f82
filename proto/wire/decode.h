// Reads commands from a private copy of what a client wrote. Every field is checked for form; meaning
// (handles, bounds, shapes) is the session's to check. A failure here is a breach of protocol. Any thread; no
// state, no allocation when all is well.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "proto/ops/op_table.h"
#include "proto/wire/commands.h"

namespace xpud::wire {

// One operand as it arrived.
struct DecodedOperand {
  OperandKind kind = OperandKind::kAbsent;
  ops::DType dtype = ops::DType::kFloat32;
  uint8_t rank = 0;
  bool strided = false;
  Handle buffer{};
  uint64_t offset = 0;  // in elements
  uint64_t bytes = 0;   // of a tensor: of so many elements, an empty dimension counting as one
  ops::Number number;
  std::array<int64_t, ops::kMaxRank> sizes;    // `rank` of them are set
  std::array<int64_t, ops::kMaxRank> strides;  // set for tensors, derived from the sizes where none were sent
};

struct DecodedExecute {
  const ops::Row* row = nullptr;
  ops::DType compute = ops::DType::kFloat32;
  uint8_t outputs = 0;
  uint8_t inputs = 0;
  uint8_t attributes = 0;
  std::array<DecodedOperand, ops::kMaxOutputs + ops::kMaxInputs> operands;  // outputs, then inputs
  std::array<ops::Number, ops::kMaxAttributes> numbers;
};

// The header of the command that starts at `bytes` (at least 8 of them): its size must be a multiple of 8
// between 8 and kMaxCommandBytes; whether all of it has arrived is the caller's to check.
absl::Status DecodeHeader(std::span<const std::byte> bytes, CommandHeader& header);

// A command of fixed size: `bytes` must hold exactly one.
template <typename Command>
absl::Status DecodeFixed(std::span<const std::byte> bytes, Command& command) {
  if (bytes.size() != sizeof(Command))
    return absl::InvalidArgumentError("a command's size does not fit its kind");
  std::memcpy(&command, bytes.data(), sizeof(Command));
  return absl::OkStatus();
}

// An inline upload; `payload` points into `bytes`.
absl::Status DecodeUploadInline(std::span<const std::byte> bytes, UploadInlineCommand& command,
                                std::span<const std::byte>& payload);

// An op. Sizes are below 2^63 and their product, times the element size, too; `numel` cannot overflow
// afterwards.
absl::Status DecodeExecute(std::span<const std::byte> bytes, DecodedExecute& execute);

}  // namespace xpud::wire
