// The first exchange on a session's unix SOCK_SEQPACKET socket: the client's Hello, and the daemon's answer
// with the fds of the session's shared memory. What follows it on the socket is in host_memory.h. Any thread.
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
  uint16_t oldest_version;  // the range that the client speaks
  uint16_t newest_version;
  char client_name[64];  // NUL-padded UTF-8, for people
};
static_assert(sizeof(Hello) == 72);

// What a gateway says before its client's greeting, and as long: for whom it asks. It is believed of the
// daemon's user, root, and whom the operator named; nobody else gets a session after it.
inline constexpr uint32_t kVouchMagic = 0x76757078;  // "xpuv"
inline constexpr size_t kMaxTenantBytes = 63;

struct Vouch {
  uint32_t magic;
  uint32_t reserved;
  char tenant[kMaxTenantBytes + 1];  // NUL-padded
};
static_assert(sizeof(Vouch) == sizeof(Hello));

struct DeviceRecord {
  char name[128];
  char kind[16];
  char vendor[16];
  uint64_t total_memory;
  uint32_t compute_units;
  uint32_t reserved;
};
static_assert(sizeof(DeviceRecord) == 176);

struct Welcome {
  uint32_t magic;
  uint16_t version;  // the one chosen; 0: refused, and `text` says why
  uint16_t device_count;
  uint64_t ring_bytes;
  uint64_t staging_bytes;
  uint64_t session_id;
  char text[256];    // the daemon's version, or the reason of a refusal
  ops::RowSet rows;  // the ops that the daemon knows
  DeviceRecord devices[kMaxDevices];
};
static_assert(sizeof(Welcome) == 288 + sizeof(ops::RowSet) + sizeof(DeviceRecord) * kMaxDevices);

// The fds that come with a Welcome, in this order.
struct SessionFds {
  UniqueFd ring;
  UniqueFd completion;
  UniqueFd staging;
  UniqueFd doorbell;  // eventfd
};

// The highest version in both ranges, or 0.
uint16_t NegotiateVersion(uint16_t oldest, uint16_t newest);

// Sends one message with up to eleven fds.
absl::Status SendMessage(int socket, std::span<const std::byte> message, std::span<const int> fds = {});
// Receives one message of exactly message.size() bytes with fds.size() fds, or none. Unavailable at hang-up.
// ResourceExhausted: the message is there, and this process may have no more fds.
absl::Status ReceiveMessage(int socket, std::span<std::byte> message, std::span<UniqueFd> fds = {});

// `text` cut to fit and NUL-terminated.
void SetText(std::span<char> field, std::string_view text);
// The text of a field that a peer sent: up to its first NUL, as PrintableText makes it.
std::string GetText(std::span<const char> field);

}  // namespace xpud::transport
