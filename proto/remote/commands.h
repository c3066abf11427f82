// Functions for relays, which inspect the commands of a remote session. Thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/wire/decode.h"

namespace xpud::remote {

// The largest message: all of staging, and commands.
inline constexpr int kMaxMessageBytes = 16 << 20;

// The metadata that carries the token: "Bearer TOKEN".
inline constexpr char kAuthorization[] = "authorization";

// Calls `visit` for each command. Returns InvalidArgument if the last command is incomplete.
inline absl::Status ForEachCommand(
    std::span<const std::byte> commands,
    absl::FunctionRef<absl::Status(const wire::CommandHeader&, std::span<const std::byte>)> visit) {
  while (!commands.empty()) {
    wire::CommandHeader header;
    if (commands.size() < sizeof(header)) return absl::InvalidArgumentError("the last command is incomplete");
    if (absl::Status status = wire::DecodeHeader(commands, header); !status.ok()) return status;
    if (header.bytes > commands.size()) return absl::InvalidArgumentError("the last command is incomplete");
    if (absl::Status status = visit(header, commands.first(header.bytes)); !status.ok()) return status;
    commands = commands.subspan(header.bytes);
  }
  return absl::OkStatus();
}

// Returns the part of staging that a command of type `Command` uses. Empty if it uses none or is malformed;
// the daemon reports malformed commands.
struct Part {
  uint64_t offset = 0, bytes = 0;
};
template <typename Command>
Part StagingOf(std::span<const std::byte> bytes, uint64_t staging_bytes) {
  Command command;
  if (bytes.size() != sizeof(command)) return {};
  std::memcpy(&command, bytes.data(), sizeof(command));
  const bool fits =
      command.host.offset <= staging_bytes && command.bytes <= staging_bytes - command.host.offset;
  return command.host.memory == 0 && fits ? Part{command.host.offset, command.bytes} : Part{};
}

}  // namespace xpud::remote
