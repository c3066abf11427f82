// Takes a device session's commands from its transport. REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/base/status_macros.h"
#include "proto/transport/transport.h"
#include "proto/wire/commands.h"

namespace xpud::session {

class CommandReader {
 public:
  explicit CommandReader(transport::ServerTransport& transport) : transport_(transport) {}

  // Whether to look at the ring, `since_turn_ns` after the last turn. A look takes a cache line from the
  // client, whose next command must fetch it back. So while commands stream in, the daemon pauses briefly
  // between two looks, unless the client waits.
  static bool Looks(uint64_t since_turn_ns, bool client_waits) {
    return client_waits || since_turn_ns >= kStreamPauseNs;
  }
  // Takes commands if none are left. Returns whether there are any. An error is a breach of protocol.
  absl::StatusOr<bool> Fill() {
    if (batch_.empty()) {
      ASSIGN_OR_RETURN(batch_, transport_.Receive());
      taken_ = 0;
    }
    return !batch_.empty();
  }
  bool empty() const { return batch_.empty(); }
  // The next command. REQUIRES: there is one.
  wire::CommandHeader Header() const {
    wire::CommandHeader header;  // which Receive has checked
    std::memcpy(&header, batch_.data(), sizeof(header));
    return header;
  }
  std::span<const std::byte> Front(const wire::CommandHeader& header) const {
    return batch_.first(header.bytes);
  }
  void Pop(const wire::CommandHeader& header) {
    batch_ = batch_.subspan(header.bytes);
    taken_ += header.bytes;
  }
  // The commands that were taken, from the next one on.
  class Ahead {
   public:
    bool empty() const { return rest_.empty(); }
    // REQUIRES: !empty().
    std::pair<wire::CommandHeader, std::span<const std::byte>> Take() {
      wire::CommandHeader header;  // which Receive has checked
      std::memcpy(&header, rest_.data(), sizeof(header));
      const auto bytes = rest_.first(header.bytes);
      rest_ = rest_.subspan(header.bytes);
      return {header, bytes};
    }

   private:
    friend class CommandReader;
    explicit Ahead(std::span<const std::byte> rest) : rest_(rest) {}
    std::span<const std::byte> rest_;
  };
  Ahead LookAhead() const { return Ahead(batch_); }
  // When the next command was published; nullopt: not known.
  std::optional<uint64_t> PublishedNs() { return transport_.PublishedNs(taken_); }
  // Takes no more commands.
  void Drop() { batch_ = {}; }

 private:
  static constexpr uint64_t kStreamPauseNs = 5000;

  transport::ServerTransport& transport_;
  std::span<const std::byte> batch_;  // commands that were taken and not yet run
  size_t taken_ = 0;                  // bytes before them that Receive returned with them
};

}  // namespace xpud::session
