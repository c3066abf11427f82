#include "proto/transport/requests.h"

#include <poll.h>

#include <array>

#include "proto/base/daemon_gone.h"
#include "proto/base/status_macros.h"
#include "proto/transport/handshake.h"

namespace xpud::transport {
namespace {

constexpr int kLookPeriodMs = 50;  // how often a waiting thread checks that the daemon lives

}  // namespace

Answer MakeAnswer(uint32_t id, const absl::Status& status, uint64_t value) {
  Answer answer = {id, static_cast<uint32_t>(status.code()), {}, value};
  SetText(answer.text, std::string_view(status.message().data(), status.message().size()));
  return answer;
}

absl::Status SendDevice(int socket, uint32_t device, const DeviceFds& fds) {
  const Answer answer = MakeAnswer(device, absl::OkStatus());
  const int raw[] = {fds.ring.get(), fds.completion.get(), fds.staging.get(), fds.doorbell.get()};
  return SendMessage(socket, std::as_bytes(std::span(&answer, 1)), raw);
}

absl::Status SessionSocket::Exchange(const Request& request, std::span<const int> sent,
                                     std::span<UniqueFd> received, uint64_t* value) const {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(SendMessage(socket_.get(), std::as_bytes(std::span(&request, 1)), sent));
  pollfd readable = {socket_.get(), POLLIN, 0};
  while (poll(&readable, 1, kLookPeriodMs) <= 0) RETURN_IF_ERROR(status());
  Answer answer;
  absl::Status got = ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&answer, 1)), received);
  if (!got.ok()) {
    RETURN_IF_ERROR(status());  // says more
    return got;
  }
  if (answer.id != request.id) return absl::InternalError("the xpud daemon answered another request");
  if (value != nullptr) *value = answer.value;
  return absl::Status(static_cast<absl::StatusCode>(answer.code), GetText(answer.text));
}

absl::StatusOr<DeviceFds> SessionSocket::OpenDevice(uint32_t device, uint64_t* peers) const {
  std::array<UniqueFd, kDeviceFds> fds;
  RETURN_IF_ERROR(Exchange({RequestKind::kOpenDevice, device, 0, 0}, {}, fds, peers));
  if (!fds[0].valid()) return absl::InternalError("the xpud daemon opened a device without its memory");
  return DeviceFds{std::move(fds[0]), std::move(fds[1]), std::move(fds[2]), std::move(fds[3])};
}

absl::Status SessionSocket::ShareHostMemory(uint32_t id, const UniqueFd& memory, uint64_t bytes,
                                            uint64_t devices) const {
  const int fd = memory.get();
  return Exchange({RequestKind::kShareMemory, id, bytes, devices}, {&fd, 1}, {});
}

absl::Status SessionSocket::StartProfile(uint32_t device, uint64_t commands) const {
  return Exchange({RequestKind::kStartProfile, device, commands, 0}, {}, {});
}

absl::Status SessionSocket::SetNice(uint32_t nice) const {
  return Exchange({RequestKind::kSetNice, nice, 0, 0}, {}, {});
}

absl::StatusOr<SessionProfile> SessionSocket::StopProfile(uint32_t device) const {
  UniqueFd memory;
  RETURN_IF_ERROR(Exchange({RequestKind::kStopProfile, device, 0, 0}, {}, {&memory, 1}));
  if (!memory.valid()) return absl::InternalError("the xpud daemon stopped a profile without sending it");
  absl::StatusOr<SessionProfile> profile = ReadProfile(memory);
  RETURN_IF_ERROR(status());  // the daemon empties the memory when the session ends
  return profile;
}

absl::Status SessionSocket::status() const {
  pollfd events = {socket_.get(), POLLRDHUP, 0};
  if (poll(&events, 1, 0) == 1 && (events.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    return DaemonGone(
        "the xpud daemon died; its device memory is lost. A new session connects to the next one");
  }
  return absl::OkStatus();
}

}  // namespace xpud::transport
