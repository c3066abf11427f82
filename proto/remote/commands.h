// What both ends of a remote session look for in the commands that pass. Any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/wire/decode.h"

namespace xpud::remote {

// The most bytes of a message: all of staging, and commands.
inline constexpr int kMaxMessageBytes = 16 << 20;

// The metadata that carries the token: "Bearer TOKEN".
inline constexpr char kAuthorization[] = "authorization";

// Shows each command of `commands`. InvalidArgument: they are not whole commands.
inline absl::Status ForEachCommand(
    std::span<const std::byte> commands,
    absl::FunctionRef<absl::Status(const wire::CommandHeader&, std::span<const std::byte>)> visit) {
  while (!commands.empty()) {
    wire::CommandHeader header;
    if (commands.size() < sizeof(header))
      return absl::InvalidArgumentError("the last of some commands is cut off");
    if (absl::Status status = wire::DecodeHeader(commands, header); !status.ok()) return status;
    if (header.bytes > commands.size())
      return absl::InvalidArgumentError("the last of some commands is cut off");
    if (absl::Status status = visit(header, commands.first(header.bytes)); !status.ok()) return status;
    commands = commands.subspan(header.bytes);
  }
  return absl::OkStatus();
}

// The part of staging that a command of the kind `Command` names; empty where it names none, or its form is
// wrong, which is the daemon's to say.
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
