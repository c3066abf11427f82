// The first exchange on a session's unix SOCK_SEQPACKET socket: the client's Hello and the daemon's Welcome.
// Later messages on the socket are in requests.h. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"
#include "proto/ops/op_table.h"
#include "proto/transport/layout.h"

namespace xpud::transport {

inline constexpr uint32_t kHelloMagic = 0x64757078;  // "xpud"

struct Hello {
  uint32_t magic;
  uint16_t oldest_version;  // range of protocol versions that the client supports
  uint16_t newest_version;
  char client_name[64];  // NUL-padded UTF-8, shown to operators
};
static_assert(sizeof(Hello) == 72);

// A gateway sends this before its client's Hello, to name the tenant of the session. It has Hello's size. The
// daemon accepts it from its own user, from root and from the users that the operator named as gateways, and
// closes the connection of any other peer.
inline constexpr uint32_t kVouchMagic = 0x76757078;  // "xpuv"
inline constexpr size_t kMaxTenantBytes = 63;

struct Vouch {
  uint32_t magic;
  uint32_t reserved;
  char tenant[kMaxTenantBytes + 1];  // NUL-padded
};
static_assert(sizeof(Vouch) == sizeof(Hello));

// Instead of a Hello, and of its size: the peer does not want a session, but to see its own sessions through
// the control plane, as `xpuctl` shows them to users who are not operators. The answer is an Answer
// (requests.h) with a connected stream socket, on which the control plane answers over gRPC until the
// session's socket is closed. Nothing else is sent on that.
inline constexpr uint32_t kViewMagic = 0x69757078;  // "xpui"

struct DeviceRecord {
  char name[128];
  char kind[16];
  char vendor[16];
  uint64_t total_memory;
  uint32_t compute_units;
  uint32_t pci_address;  // PciAddress::bits; 0, also of older daemons: unknown
};
static_assert(sizeof(DeviceRecord) == 176);

struct Welcome {
  uint32_t magic;
  uint16_t version;  // the chosen version; 0: refused, `text` has the reason
  uint16_t device_count;
  uint64_t ring_bytes;     // of each device that is opened
  uint64_t staging_bytes;  // likewise
  uint64_t session_id;
  char text[256];    // the daemon's version, or the reason of a refusal
  ops::RowSet rows;  // the ops that the daemon knows
  DeviceRecord devices[kMaxDevices];
};
static_assert(sizeof(Welcome) == 288 + sizeof(ops::RowSet) + sizeof(DeviceRecord) * kMaxDevices);

// Returns the highest version in both ranges, or 0 if there is none.
uint16_t NegotiateVersion(uint16_t oldest, uint16_t newest);

inline constexpr size_t kMaxMessageFds = 32;

// Sends one message. REQUIRES: at most kMaxMessageFds fds.
absl::Status SendMessage(int socket, std::span<const std::byte> message, std::span<const int> fds = {});
// Receives one message of exactly message.size() bytes, with fds.size() fds or none. Returns Unavailable
// after a hang-up, and ResourceExhausted if the message arrived but this process has reached its limit of
// fds.
absl::Status ReceiveMessage(int socket, std::span<std::byte> message, std::span<UniqueFd> fds = {});

// Stores `text` in `field`, truncated to fit and NUL-terminated.
void SetText(std::span<char> field, std::string_view text);
// Returns the text of a field that a peer sent, up to its first NUL, sanitized by PrintableText.
std::string GetText(std::span<const char> field);

}  // namespace xpud::transport
