// Messages on a session's socket. The first byte selects the end: a real Listener and Lanes get messages of
// a hostile client, or a real client gets answers of a hostile daemon. A message is two bytes of size, one
// byte that selects its fds, and its bytes.
#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/lane/testing/memory_device.h"
#include "daemon/scheduler/tenant_shares.h"
#include "daemon/service/listener.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "proto/transport/host_memory.h"
#include "proto/transport/shm_server.h"
#include "sdk/client/connect.h"
#include "sdk/client/core.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/temporary_folder.h"

namespace xpud::fuzz {
namespace {

constexpr uint64_t kHostBytes = transport::kHostMemoryUnit;
constexpr int kPatienceMs = 10'000;  // an answer or a hang-up must come within this time

std::string Folder() {
  static const TemporaryFolder folder;
  return folder.path();
}

// Returns fds that a peer may send, valid or not.
std::vector<UniqueFd> MakeFds(uint8_t kind) {
  std::vector<UniqueFd> fds;
  switch (kind % 8) {
    case 0:
      break;
    case 1:
      fds.push_back(*transport::CreateHostMemory(kHostBytes));
      break;
    case 2:  // not sealed, without pages
      fds.emplace_back(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      XPUD_CHECK(ftruncate(fds[0].get(), kHostBytes) == 0);
      break;
    case 3:
      fds.emplace_back(eventfd(0, EFD_CLOEXEC));
      break;
    case 4:  // sealed, without pages
      fds.push_back(*CreateSealedMemfd("fuzz", kHostBytes));
      break;
    case 5:
      fds.push_back(*transport::CreateHostMemory(kHostBytes));
      fds.push_back(*transport::CreateHostMemory(kHostBytes));
      break;
    case 6:     // the fds of a session, in order
    default: {  // 7: the same out of order
      transport::DeviceFds session;
      XPUD_CHECK(transport::ShmServer::Create(session).ok());
      for (UniqueFd* fd : {&session.ring, &session.completion, &session.staging, &session.doorbell})
        fds.push_back(std::move(*fd));
      if (kind % 8 == 7) std::swap(fds[0], fds[3]);
    }
  }
  return fds;
}

struct Message {
  explicit Message(Bytes& input)
      : size(input.Take<uint16_t>()), fds(MakeFds(input.Take<uint8_t>())), bytes(input.Take(size)) {}
  bool SendTo(int socket) const {
    std::vector<int> raw;
    for (const UniqueFd& fd : fds) raw.push_back(fd.get());
    return transport::SendMessage(socket, bytes, raw).ok();
  }
  uint16_t size;
  std::vector<UniqueFd> fds;
  std::span<const std::byte> bytes;
};

bool IsPrintable(std::string_view text) { return PrintableText(text) == text; }

// ---- the daemon's end

class Daemon {
 public:
  Daemon() : socket_(Folder() + "/xpud.sock") {
    std::vector<stream::DeviceState> devices(1);
    devices[0].Use(std::make_unique<lane::MemoryDevice>(/*asynchronous=*/false, uint64_t{64} << 20), 0);
    service::Listener::Options listener;
    listener.socket_path = socket_;
    listener_ = *service::Listener::Create(listener, registry_.claims());
    listener_->SetLimits({.exit_when_idle = {}, .host_memory = 2 * kHostBytes});
    lanes_ = *lane::Lanes::Create(std::move(devices), registry_,
                                  {.policy = scheduler::TenantShares::Create,
                                   .on_close = [this](uint64_t session) { listener_->HangUp(session); }});
    std::thread([this] { listener_->Serve(*lanes_); }).detach();
  }

  // Each message must be answered, or the connection closed.
  void Serve(Bytes input) {
    const UniqueFd socket = *client::ConnectSocket(socket_);
    while (!input.empty()) {
      if (!Message(input).SendTo(socket.get()) || !Answered(socket.get())) return;
      CheckNames();
    }
  }

 private:
  static bool Answered(int socket) {
    pollfd readable = {socket, POLLIN, 0};
    XPUD_CHECK(TEMP_FAILURE_RETRY(poll(&readable, 1, kPatienceMs)) == 1);  // libFuzzer's alarm
    std::array<char, sizeof(transport::Welcome) + 1> answer;
    const ssize_t received = TEMP_FAILURE_RETRY(recv(socket, answer.data(), answer.size(), 0));
    if (received <= 0) return false;
    XPUD_CHECK(received == sizeof(transport::Welcome) || received == sizeof(transport::Answer));
    return true;
  }
  void CheckNames() {
    for (const auto& session : registry_.List()) XPUD_CHECK(IsPrintable(session->peer().name));
  }

  const std::string socket_;
  std::unique_ptr<service::Listener> listener_;
  session::Registry registry_;
  std::unique_ptr<lane::Lanes> lanes_;
};

// ---- the client's end

class HostileDaemon {
 public:
  HostileDaemon() : path_(Folder() + "/hostile.sock") {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    socket_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    XPUD_CHECK(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    XPUD_CHECK(listen(socket_.get(), 8) == 0);
  }

  void Answer(Bytes input) {
    const std::array<Message, 3> messages = {Message(input), Message(input), Message(input)};
    std::thread daemon([&] {
      const UniqueFd peer(TEMP_FAILURE_RETRY(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      for (const Message& message : messages) {
        std::array<char, 256> question;
        if (TEMP_FAILURE_RETRY(recv(peer.get(), question.data(), question.size(), 0)) <= 0 ||
            !message.SendTo(peer.get()))
          break;
      }
    });
    Connect();
    daemon.join();
  }

 private:
  void Connect() const {
    ConnectOptions options;
    options.address = path_;
    options.timeout = std::chrono::milliseconds(kPatienceMs);
    auto connection = client::Connect(options);
    if (!connection.ok()) return CheckMessage(connection.status());
    CheckMessage(
        connection->socket->ShareHostMemory(1, *transport::CreateHostMemory(kHostBytes), kHostBytes, 1));
    const auto core = std::make_shared<client::Core>(*std::move(connection), options);
    if (!core->devices().empty()) CheckMessage(core->Open(0).status());
    for (const DeviceInfo& device : core->devices())
      XPUD_CHECK(IsPrintable(device.name) && IsPrintable(device.kind) && IsPrintable(device.vendor));
  }
  static void CheckMessage(const absl::Status& status) {
    XPUD_CHECK(IsPrintable({status.message().data(), status.message().size()}));
  }

  const std::string path_;
  UniqueFd socket_;
};

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  // Never destroyed, because the listener's thread logs until the process ends.
  static auto* const logger = new std::shared_ptr<spdlog::logger>(spdlog::default_logger());
  static auto* const daemon = new Daemon;
  static auto* const hostile = new HostileDaemon;
  Bytes input(data, size);
  (*logger)->set_level(spdlog::level::off);
  if (input.Take<uint8_t>() % 2 == 0) {
    daemon->Serve(input);
  } else {
    hostile->Answer(input);
  }
  return 0;
}
