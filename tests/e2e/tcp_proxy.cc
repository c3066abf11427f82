#include "tests/e2e/tcp_proxy.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#include <vector>

namespace xpud::e2e {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void SendAtOnce(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

TcpProxy::TcpProxy(const std::string& target)
    : target_port_(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener_.get(), 16) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    std::abort();
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  acceptor_ = std::thread([this] { Accept(); });
}

TcpProxy::~TcpProxy() {
  stops_.store(true);
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  Cut();
  MutexLock lock(mutex_);
  for (Pair& pair : pairs_) {
    pair.there.join();
    pair.back.join();
  }
}

void TcpProxy::Cut() {
  MutexLock lock(mutex_);
  for (const Pair& pair : pairs_) {
    shutdown(pair.client.get(), SHUT_RDWR);
    shutdown(pair.target.get(), SHUT_RDWR);
  }
}

void TcpProxy::Accept() {
  while (!stops_.load()) {
    UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client.valid() || down_.load()) continue;
    UniqueFd target(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(target_port_);
    if (connect(target.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) continue;
    for (const int socket : {client.get(), target.get()}) SendAtOnce(socket);
    MutexLock lock(mutex_);
    Pair& pair = pairs_.emplace_back();
    pair.client = std::move(client);
    pair.target = std::move(target);
    pair.there = std::thread([this, &pair] { Forward(pair.client.get(), pair.target.get()); });
    pair.back = std::thread([this, &pair] { Forward(pair.target.get(), pair.client.get()); });
  }
}

void TcpProxy::Forward(int from, int to) {
  std::vector<char> bytes(64 << 10);
  ssize_t got;
  while ((got = recv(from, bytes.data(), bytes.size(), 0)) > 0) {
    for (ssize_t sent = 0, once; sent < got; sent += once) {
      once = send(to, bytes.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (once <= 0) return;
    }
    forwarded_ += static_cast<uint64_t>(got);
  }
  shutdown(to, SHUT_RDWR);
}

}  // namespace xpud::e2e
