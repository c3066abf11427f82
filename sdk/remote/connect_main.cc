// xpud-connect HOST:PORT TIMEOUT_MS RECONNECT_S [--background]: the local end of a session with a remote
// daemon. The client's library starts it with a socket as descriptor 3, and talks to it as to a daemon.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"
#include "proto/remote/heap.h"
#include "sdk/remote/connector.h"

namespace xpud::remote {
namespace {

constexpr int kSocketFd = 3, kFailure = 1, kUsageError = 2;

void Refuse(int socket, const absl::Status& why) {
  transport::Welcome welcome = {};
  welcome.magic = transport::kHelloMagic;
  transport::SetText(welcome.text, std::string_view(why.message().data(), why.message().size()));
  (void)transport::SendMessage(socket, std::as_bytes(std::span(&welcome, 1)));
}

// Returns a pidfd of the process that made the socket.
UniqueFd ClientProcess(int socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

int Serve(const StreamClient::Options& options) {
  UniqueFd socket(kSocketFd);
  const UniqueFd client = ClientProcess(kSocketFd);
  transport::Hello hello;
  if (!transport::ReceiveMessage(kSocketFd, std::as_writable_bytes(std::span(&hello, 1))).ok())
    return kFailure;
  const int raw = socket.get();
  UniqueFd to_refuse(dup(raw));
  auto session = Connector::Connect(options, hello, std::move(socket));
  if (!session.ok()) {
    Refuse(to_refuse.get(), session.status());
    return kFailure;
  }
  to_refuse.Reset();
  (*session)->Run(client);
  _exit(0);  // gRPC's destructors would take seconds
}

int Main(int argc, char** argv) {
  const bool background = argc == 5 && std::strcmp(argv[4], "--background") == 0;
  int64_t timeout_ms = 0, reconnect_s = 0;
  if ((argc != 4 && !background) || !absl::SimpleAtoi(argv[2], &timeout_ms) ||
      !absl::SimpleAtoi(argv[3], &reconnect_s)) {
    std::fprintf(stderr,
                 "usage: xpud-connect HOST:PORT TIMEOUT_MS RECONNECT_S [--background]; libxpud starts it\n");
    return kUsageError;
  }
  close_range(kSocketFd + 1, ~0U, 0);
  if (background) {
    if (fork() != 0) _exit(0);
    setsid();  // the terminal's signals must reach the client only
  }
  signal(SIGPIPE, SIG_IGN);
  return Serve({argv[1], std::chrono::milliseconds(timeout_ms), std::chrono::seconds(reconnect_s)});
}

}  // namespace
}  // namespace xpud::remote

int main(int argc, char** argv) {
  xpud::remote::KeepFreedMemory();
  return xpud::remote::Main(argc, argv);
}
