#include "daemon/service/connections.h"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/transport/handshake.h"

namespace xpud::service {
namespace {

using Clock = std::chrono::steady_clock;

// Refuses a client before its Hello was read, and tells it why.
void RefuseBeforeHello(int socket, const ucred& peer, const absl::Status& why) {
  spdlog::warn("client_refused pid={} uid={} reason=\"{}\"", peer.pid, peer.uid, std::string(why.message()));
  SendRefusal(socket, why);
}

// Returns a pidfd of the peer, which may be in another pid namespace. Invalid if the process has ended, or if
// the kernel is too old.
UniqueFd ProcessOf(int socket, const ucred& peer) {
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD of Linux 6.5, which is newer than the headers
  int process = -1;
  socklen_t length = sizeof(process);
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &process, &length) == 0) return UniqueFd(process);
  if (errno != ENOPROTOOPT) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

// Returns the tenant that the peer is at this door.
absl::StatusOr<Tenant> TenantAt(const Door& door, uint32_t uid, const Claims& claims) {
  if (door.only_uid && uid != *door.only_uid) {
    return absl::PermissionDeniedError(absl::StrCat("it is user ", uid, ", and this door of the claim ",
                                                    door.claim, " is for user ", *door.only_uid));
  }
  return door.claim.empty() ? claims.TenantOf({uid}) : Tenant::OfClaim(door.claim);
}

}  // namespace

void SendRefusal(int socket, const absl::Status& why) {
  // What is unread when a socket closes would make the peer lose our answer.
  shutdown(socket, SHUT_RD);
  transport::Hello unread;
  while (recv(socket, &unread, sizeof(unread), MSG_DONTWAIT) > 0) continue;
  transport::Welcome welcome = {};
  welcome.magic = transport::kHelloMagic;
  transport::SetText(welcome.text, std::string_view(why.message().data(), why.message().size()));
  (void)transport::SendMessage(socket, std::as_bytes(std::span(&welcome, 1)));
}

absl::Status Connection::Send(std::span<const std::byte> message, std::span<const int> fds) const {
  return transport::SendMessage(socket.get(), message, fds);
}

Connections::Connections(Poller& poller, const Claims& claims)
    : poller_(poller), claims_(claims), spare_(eventfd(0, EFD_CLOEXEC)) {}

void Connections::AcceptAt(const Door& door) {
  while (true) {
    UniqueFd fd(accept4(door.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE) && RefuseOne(door)) continue;
    if (!fd.valid()) return;
    ucred peer = {};
    socklen_t length = sizeof(peer);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) continue;
    const absl::StatusOr<Tenant> tenant = TenantAt(door, peer.uid, claims_);
    if (absl::Status taken = tenant.ok() ? seats_.Take(*tenant) : tenant.status(); !taken.ok()) {
      RefuseBeforeHello(fd.get(), peer, taken);
      continue;
    }
    UniqueFd process = ProcessOf(fd.get(), peer);
    if (!process.valid() && peer.pid == 0) {
      RefuseBeforeHello(
          fd.get(), peer,
          absl::FailedPreconditionError("its process is in a pid namespace that this daemon does not see; "
                                        "use Linux 6.5 or later, or one pid namespace for both"));
    }
    if (!Admit(door, *tenant, std::move(fd), std::move(process), peer)) seats_.Release(*tenant);
  }
}

bool Connections::Admit(const Door& door, const Tenant& tenant, UniqueFd socket, UniqueFd process,
                        const ucred& peer) {
  if (!process.valid()) return false;  // the process has ended
  Connection client;
  client.process = std::move(process);
  client.peer = {peer.pid, peer.uid, tenant, ""};
  client.seat = tenant;
  client.gateway_uid = door.gateway_uid;
  client.at_claim = !door.claim.empty();
  client.accepted = Clock::now();
  const uint64_t key = next_key_++;
  if (!poller_.Watch(socket.get(), Poller::Source::kSocket, key, EPOLLIN | EPOLLRDHUP).ok() ||
      !poller_.Watch(client.process.get(), Poller::Source::kProcess, key).ok()) {
    return false;
  }
  client.socket = std::move(socket);
  connections_.emplace(key, std::move(client));
  return true;
}

// Accepts one connection, tells it why and closes it. If it stayed pending, this thread would spin and the
// client would wait.
bool Connections::RefuseOne(const Door& door) {
  spare_.Reset();
  UniqueFd fd(accept4(door.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool was_there = fd.valid();
  if (was_there) {
    ucred peer = {};
    socklen_t length = sizeof(peer);
    getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
    errno = EMFILE;
    RefuseBeforeHello(fd.get(), peer, DescriptorError("accept4"));
  }
  fd.Reset();
  spare_.Reset(eventfd(0, EFD_CLOEXEC));
  return was_there;
}

Connection* Connections::Find(uint64_t key) {
  const auto found = connections_.find(key);
  return found == connections_.end() ? nullptr : &found->second;
}

Connection* Connections::FindSession(uint64_t session) {
  for (auto& [key, client] : connections_)
    if (client.session != nullptr && client.session->id() == session) return &client;
  return nullptr;
}

absl::Status Connections::Watch(uint64_t key, uint32_t events) {
  return poller_.Change(connections_.find(key)->second.socket.get(), Poller::Source::kSocket, key, events);
}

void Connections::End(uint64_t key) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  seats_.Release(found->second.seat);
  connections_.erase(found);
}

std::vector<uint64_t> Connections::WithoutSession(Clock::time_point before) const {
  std::vector<uint64_t> keys;
  for (const auto& [key, client] : connections_)
    if (client.session == nullptr && client.accepted < before) keys.push_back(key);
  return keys;
}

}  // namespace xpud::service
