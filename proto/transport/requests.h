// Requests on a session's socket after the handshake: the client sends one at a time, and the daemon answers
// each.
//
// clang-format off
//   kOpenDevice    `id`: the device, which this session has not opened. The answer brings the DeviceFds, and in `value`
//                  the mask of devices from which this one copies (wire::CopyFromCommand); an older daemon: 0.
//   kShareMemory   with a memfd of `bytes` (host_memory.h), for the devices in the mask `devices`, which must be
//                  open. `id`: chosen by the client, not 0. An id in use names the memory that it has; then the
//                  memfd is ignored, and the further devices get that memory. Answered when all can use it.
//   kStartProfile  records the session's last `bytes` commands (1 to kMaxProfileCommands, profile.h) on device
//                  `id`, which must be open. One that runs begins anew. From protocol version 6 on.
//   kSetNice       `id`: the session's nice from now on, not less than it has. From protocol version 8 on.
//   kStopProfile   ends the profile on device `id`. The answer brings its memfd.
// clang-format on
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/profile.h"

namespace xpud::transport {

enum class RequestKind : uint32_t {
  kOpenDevice = 0x6f647078,    // "xpdo"
  kShareMemory = 0x6d647078,   // "xpdm"
  kStartProfile = 0x70647078,  // "xpdp"
  kStopProfile = 0x71647078,   // "xpdq"
  kSetNice = 0x6e647078,       // "xpdn"
};

struct Request {
  RequestKind kind;
  uint32_t id;
  uint64_t bytes;
  uint64_t devices;  // bit d stands for device d
};
static_assert(sizeof(Request) == 24);

struct Answer {
  uint32_t id;    // of the request
  uint32_t code;  // absl::StatusCode
  char text[240];
  uint64_t value;
};
static_assert(sizeof(Answer) == 256);

Answer MakeAnswer(uint32_t id, const absl::Status& status, uint64_t value = 0);

// A session's shared memory on one device, in the order of the fds that come with the answer.
struct DeviceFds {
  UniqueFd ring;
  UniqueFd completion;
  UniqueFd staging;
  UniqueFd doorbell;  // eventfd
};
inline constexpr size_t kDeviceFds = 4;

// Sends an answer that brings a device's memory.
absl::Status SendDevice(int socket, uint32_t device, const DeviceFds& fds);

// The client's end of the socket. The session lives as long as it is open. Thread-safe.
class SessionSocket {
 public:
  // REQUIRES: the handshake on `socket` is complete.
  explicit SessionSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  // Both block until the answer, and return Unavailable if the daemon hangs up.
  // `peers`: not null: gets the mask of devices from which this one copies.
  absl::StatusOr<DeviceFds> OpenDevice(uint32_t device, uint64_t* peers = nullptr) const;
  // Takes about 0.3 s per GiB on GPUs. Returns ResourceExhausted beyond the session's limit, and
  // Unimplemented if the daemon is on another machine.
  absl::Status ShareHostMemory(uint32_t id, const UniqueFd& memory, uint64_t bytes, uint64_t devices) const;
  // Records the session's last `commands` commands on a device. Returns ResourceExhausted if the profiles of
  // all sessions would take too much memory.
  absl::Status StartProfile(uint32_t device, uint64_t commands) const;
  // Returns what was recorded. FailedPrecondition: no profile was started.
  absl::StatusOr<SessionProfile> StopProfile(uint32_t device) const;
  // Lowers the session among those of its tenant. Returns InvalidArgument if `nice` is not allowed.
  absl::Status SetNice(uint32_t nice) const;
  // Returns Unavailable if the daemon has hung up.
  absl::Status status() const;

 private:
  absl::Status Exchange(const Request& request, std::span<const int> sent, std::span<UniqueFd> received,
                        uint64_t* value = nullptr) const;

  const UniqueFd socket_;
  mutable Mutex mutex_;  // held from a request until its answer
};

}  // namespace xpud::transport
