#include "daemon/service/acceptor.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>

namespace xpud::service {

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(UniqueFd socket,
                                                          std::function<void(UniqueFd)> take) {
  UniqueFd end(eventfd(0, EFD_CLOEXEC));
  if (!end.valid()) return absl::ErrnoToStatus(errno, "eventfd failed");
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(socket), std::move(end), std::move(take)));
}

Acceptor::Acceptor(UniqueFd socket, UniqueFd end, std::function<void(UniqueFd)> take)
    : socket_(std::move(socket)), end_(std::move(end)), take_(std::move(take)), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "xpud-accept");
}

Acceptor::~Acceptor() {
  eventfd_write(end_.get(), 1);
  thread_.join();
}

void Acceptor::Run() {
  std::array<pollfd, 2> watched = {{{socket_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}}};
  while (poll(watched.data(), watched.size(), -1) >= 0 || errno == EINTR) {
    if (watched[1].revents != 0) return;
    UniqueFd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      take_(std::move(connection));
    } else if (errno == EMFILE || errno == ENFILE) {  // the connection stays pending: do not spin
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

}  // namespace xpud::service
