#include "proto/transport/handshake.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/check.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/text.h"
#include "proto/wire/commands.h"

namespace xpud::transport {
namespace {

// Takes ownership of the fds in the control data and closes surplus ones. Returns how many there were.
size_t TakeFds(msghdr& header, std::span<UniqueFd> fds) {
  size_t count = 0;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t received = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < received; ++i) {
      int raw;
      std::memcpy(&raw, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      UniqueFd fd(raw);
      if (count < fds.size()) fds[count] = std::move(fd);
      ++count;
    }
  }
  return count;
}

}  // namespace

uint16_t NegotiateVersion(uint16_t oldest, uint16_t newest) {
  const uint16_t best = std::min(newest, wire::kNewestVersion);
  return best >= std::max(oldest, wire::kOldestVersion) ? best : 0;
}

absl::Status SendMessage(int socket, std::span<const std::byte> message, std::span<const int> fds) {
  XPUD_CHECK(fds.size() <= kMaxMessageFds);
  iovec io = {const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxMessageFds * sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(message.size())) return absl::ErrnoToStatus(errno, "sendmsg failed");
  return absl::OkStatus();
}

absl::Status ReceiveMessage(int socket, std::span<std::byte> message, std::span<UniqueFd> fds) {
  iovec io = {message.data(), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxMessageFds * sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return absl::ErrnoToStatus(errno, "recvmsg failed");
  const size_t count = TakeFds(header, fds);
  if (received == 0) return absl::UnavailableError("the peer hung up");
  if (received != static_cast<ssize_t>(message.size()) || (header.msg_flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", received, " bytes where ", message.size(), " were expected"));
  }
  if ((header.msg_flags & MSG_CTRUNC) != 0 && count < fds.size()) {
    errno = EMFILE;  // the kernel does not say so
    return DescriptorError("recvmsg");
  }
  if ((count != fds.size() && count != 0) || (header.msg_flags & MSG_CTRUNC) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message with ", count, " file descriptors where ", fds.size(), " were expected"));
  }
  return absl::OkStatus();
}

void SetText(std::span<char> field, std::string_view text) {
  const size_t length = std::min(text.size(), field.size() - 1);
  std::copy_n(text.begin(), length, field.begin());
  std::fill(field.begin() + static_cast<ptrdiff_t>(length), field.end(), '\0');
}

std::string GetText(std::span<const char> field) {
  const auto end = std::find(field.begin(), field.end(), '\0');
  return PrintableText(std::string_view(field.data(), static_cast<size_t>(end - field.begin())));
}

}  // namespace xpud::transport
