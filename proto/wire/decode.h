// Reads commands from a private copy of what a client wrote. Every field is checked for form; meaning
// (handles, bounds, shapes) is the session's to check. A failure here is a breach of protocol. Any thread; no
// state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

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

// Its vectors keep their storage from command to command.
struct DecodedExecute {
  const ops::Row* row = nullptr;
  ops::DType compute = ops::DType::kFloat32;
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  std::vector<DecodedOperand> operands;  // outputs, then inputs; what is behind them is of earlier commands
  std::vector<ops::Number> attributes;   // as ops::Call has them
  std::vector<uint16_t> lists;           // as ops::Call has them
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

// A range's begin or end; `name` points into `bytes`.
absl::Status DecodeRange(std::span<const std::byte> bytes, std::string_view& name);

// A definition of a loop kernel; both parts point into `bytes`. What they say is not looked at.
absl::Status DecodeDefineKernel(std::span<const std::byte> bytes, DefineKernelCommand& command,
                                std::string_view& kernel, std::string_view& name);

// A loop kernel's call that will follow. Its vectors keep their storage.
struct DecodedPrepare {
  uint32_t kernel = 0;
  std::vector<int64_t> sizes;     // any numbers
  std::vector<int64_t> elements;  // 0 to kMaxElements
};
absl::Status DecodePrepareKernel(std::span<const std::byte> bytes, DecodedPrepare& prepare);

// An op, its attributes and tensor lists as its family's schema says. Sizes are below 2^63 and their product,
// times the element size, too; `numel` cannot overflow afterwards.
absl::Status DecodeExecute(std::span<const std::byte> bytes, DecodedExecute& execute);

}  // namespace xpud::wire
