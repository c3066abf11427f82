#include "daemon/service/acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "proto/base/descriptor_error.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::service {

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(UniqueFd socket,
                                                          std::function<void(UniqueFd)> take) {
  UniqueFd end(eventfd(0, EFD_CLOEXEC));
  if (!end.valid()) return DescriptorError("eventfd");
  std::unique_ptr<Acceptor> acceptor(new Acceptor(std::move(socket), std::move(end), std::move(take)));
  ASSIGN_OR_RETURN(acceptor->thread_, StartThread("xpud-accept", [raw = acceptor.get()] { raw->Run(); }));
  return acceptor;
}

Acceptor::Acceptor(UniqueFd socket, UniqueFd end, std::function<void(UniqueFd)> take)
    : socket_(std::move(socket)), end_(std::move(end)), take_(std::move(take)) {}

Acceptor::~Acceptor() {
  eventfd_write(end_.get(), 1);
  if (thread_.joinable()) thread_.join();
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
