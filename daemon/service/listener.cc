#include "daemon/service/listener.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/service/socket_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"
#include "proto/transport/host_memory.h"
#include "proto/transport/shm_server.h"

namespace xpud::service {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kListenTag = 1, kSignalTag = 2, kInboxTag = 3;
constexpr auto kHelloTimeout = std::chrono::seconds(5);

uint64_t SocketTag(uint64_t key) { return key << 1; }
uint64_t ProcessTag(uint64_t key) { return key << 1 | 1; }

absl::Status Errno(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

absl::Status Watch(int epoll, int fd, uint32_t events, uint64_t tag, int operation = EPOLL_CTL_ADD) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = tag;
  return epoll_ctl(epoll, operation, fd, &event) == 0 ? absl::OkStatus() : Errno("epoll_ctl failed");
}

void SendRefusal(int socket, const absl::Status& why) {
  transport::Welcome welcome = {};
  welcome.magic = transport::kHelloMagic;
  transport::SetText(welcome.text, std::string_view(why.message().data(), why.message().size()));
  (void)transport::SendMessage(socket, std::as_bytes(std::span(&welcome, 1)));
}

// Refuses a client before its Hello was read, and tells it why. Drains the socket first: data that is unread
// when a socket closes would make the peer lose our answer.
void RefuseBeforeHello(int socket, const ucred& peer, const absl::Status& why) {
  spdlog::warn("client_refused pid={} uid={} reason=\"{}\"", peer.pid, peer.uid, std::string(why.message()));
  shutdown(socket, SHUT_RD);
  transport::Hello hello;
  while (recv(socket, &hello, sizeof(hello), 0) > 0) continue;
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

// The lock file is not written through a link, or if another user has put a file in its place.
absl::Status CheckLock(const UniqueFd& lock, const std::string& path) {
  struct stat info;
  if (fstat(lock.get(), &info) != 0) return Errno(absl::StrCat("cannot read the attributes of ", path));
  if (S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1 &&
      !OthersMayWrite(info.st_mode))
    return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s belongs to uid %d with mode %04o; it has to be a file of uid %d that nobody else may "
      "write, with one name: remove it",
      path, info.st_uid, info.st_mode & 07777, geteuid()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Create(Options options, UniqueFd handed) {
  std::unique_ptr<Listener> listener(new Listener(std::move(options)));
  RETURN_IF_ERROR(listener->Bind(std::move(handed)));
  return listener;
}

absl::Status Listener::Bind(UniqueFd handed) {
  const std::string& path = options_.socket_path;
  RETURN_IF_ERROR(CheckFolderIsOurs(std::filesystem::path(path).parent_path().string()));
  lock_.Reset(open((path + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock_.valid()) return Errno(absl::StrCat("cannot open ", path, ".lock"));
  RETURN_IF_ERROR(CheckLock(lock_, path + ".lock"));
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("another xpud daemon serves ", path));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");  // tells operators which process holds it
  if (ftruncate(lock_.get(), 0) != 0 || write(lock_.get(), pid.data(), pid.size()) < 0)
    return Errno("cannot write the lock file");
  if (handed.valid()) {
    socket_ = std::move(handed);
  } else {
    ASSIGN_OR_RETURN(socket_, ListenAt(path, options_.socket_mode));
    bound_ = true;
  }
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  inbox_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_.Reset(eventfd(0, EFD_CLOEXEC));
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  RETURN_IF_ERROR(Watch(epoll_.get(), socket_.get(), EPOLLIN, kListenTag));
  RETURN_IF_ERROR(Watch(epoll_.get(), signals_.get(), EPOLLIN, kSignalTag));
  return Watch(epoll_.get(), inbox_.get(), EPOLLIN, kInboxTag);
}

Listener::~Listener() {
  if (bound_) unlink(options_.socket_path.c_str());
}

void Listener::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  eventfd_write(inbox_.get(), 1);
}

void Listener::RunTasks() {
  eventfd_t count;
  eventfd_read(inbox_.get(), &count);
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

void Listener::ShutDown(uint64_t session) {
  const auto found = std::find_if(clients_.begin(), clients_.end(),
                                  [&](const auto& entry) { return entry.second.session == session; });
  if (found != clients_.end()) shutdown(found->second.socket.get(), SHUT_RDWR);
}

void Listener::Accept() {
  while (true) {
    UniqueFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE) && RefuseOne()) continue;
    if (!fd.valid()) return;
    ucred peer = {};
    socklen_t length = sizeof(peer);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) continue;
    if (absl::Status taken = places_.Take(peer.uid); !taken.ok()) {
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
    if (!Admit(std::move(fd), std::move(process), peer)) places_.Release(peer.uid);
  }
}

bool Listener::Admit(UniqueFd socket, UniqueFd process, const ucred& peer) {
  if (!process.valid()) return false;  // the process has ended
  Client client;
  client.process = std::move(process);
  client.peer = {peer.pid, {peer.uid, ""}, ""};
  client.accepted = Clock::now();
  const uint64_t key = next_key_++;
  if (!Watch(epoll_.get(), socket.get(), EPOLLIN | EPOLLRDHUP, SocketTag(key)).ok() ||
      !Watch(epoll_.get(), client.process.get(), EPOLLIN, ProcessTag(key)).ok()) {
    return false;
  }
  client.socket = std::move(socket);
  clients_.emplace(key, std::move(client));
  return true;
}

// Accepts and closes one connection. If it stayed pending, this thread would spin and the client would wait.
bool Listener::RefuseOne() {
  spare_.Reset();
  UniqueFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool was_there = fd.valid();
  fd.Reset();
  spare_.Reset(eventfd(0, EFD_CLOEXEC));
  if (was_there)
    spdlog::warn("client_refused reason=\"the daemon has reached its limit of file descriptors\"");
  return was_there;
}

// Sends a client with our protocol the reason why it gets no session.
void Listener::Refuse(const Client& client, const transport::Hello& hello, const absl::Status& why) {
  spdlog::warn("client_refused pid={} tenant={} reason=\"{}\"", client.peer.pid, client.peer.tenant.Text(),
               std::string(why.message()));
  if (hello.magic == transport::kHelloMagic || hello.magic == transport::kVouchMagic)
    SendRefusal(client.socket.get(), why);
  shutdown(client.socket.get(), SHUT_RDWR);  // the hang-up drops the client
}

absl::Status Listener::OpenSession(scheduler::Engine& engine, Client& client, const transport::Hello& hello) {
  transport::Welcome welcome = {};
  welcome.magic = transport::kHelloMagic;
  if (hello.magic != transport::kHelloMagic)
    return absl::InvalidArgumentError("the first message is not an xpud Hello");
  welcome.version = transport::NegotiateVersion(hello.oldest_version, hello.newest_version);
  if (welcome.version == 0) {
    return absl::FailedPreconditionError(absl::StrCat("it speaks protocol versions ", hello.oldest_version,
                                                      " to ", hello.newest_version, ", this daemon ",
                                                      wire::kOldestVersion, " to ", wire::kNewestVersion));
  }
  client.peer.name = transport::GetText(hello.client_name);
  transport::SessionFds fds;
  ASSIGN_OR_RETURN(auto server, transport::ShmServer::Create(fds));
  welcome.ring_bytes = transport::kRingBytes;
  welcome.staging_bytes = transport::kStagingBytes;
  welcome.session_id = next_session_++;
  welcome.rows = ops::KnownRows();
  transport::SetText(welcome.text, XPUD_VERSION);
  absl::Status opened;
  engine.Call([&] {
    opened = engine.Admits();
    if (!opened.ok()) return;
    auto& devices = engine.devices();
    welcome.device_count = static_cast<uint16_t>(std::min(devices.size(), transport::kMaxDevices));
    for (size_t d = 0; d < welcome.device_count; ++d) {
      const executor::DeviceProperties& properties = devices[d].device->properties();
      transport::DeviceRecord& record = welcome.devices[d];
      transport::SetText(record.name, properties.name);
      transport::SetText(record.kind, properties.kind);
      transport::SetText(record.vendor, properties.vendor);
      record.total_memory = properties.total_memory;
      record.compute_units = properties.compute_units;
    }
    auto session = std::make_unique<session::Session>(welcome.session_id, client.peer, std::move(server),
                                                      devices, limits_.host_memory, tables_);
    opened = session->Open();
    if (opened.ok()) engine.AddSession(std::move(session));
  });
  RETURN_IF_ERROR(opened);
  client.session = welcome.session_id;
  const int raw[] = {fds.ring.get(), fds.completion.get(), fds.staging.get(), fds.doorbell.get()};
  return transport::SendMessage(client.socket.get(), std::as_bytes(std::span(&welcome, 1)), raw);
}

void Listener::Greet(scheduler::Engine& engine, Client& client) {
  transport::Hello hello = {};
  absl::Status status =
      transport::ReceiveMessage(client.socket.get(), std::as_writable_bytes(std::span(&hello, 1)));
  if (status.ok() && hello.magic == transport::kVouchMagic) {
    status = TakeVouch(client, std::bit_cast<transport::Vouch>(hello));
    if (status.ok()) return;  // its Hello follows
  }
  if (status.ok()) status = OpenSession(engine, client, hello);
  if (status.ok()) {
    spdlog::info("session_opened id={} pid={} tenant={} name=\"{}\"", client.session, client.peer.pid,
                 client.peer.tenant.Text(), absl::Utf8SafeCEscape(client.peer.name));
    return;
  }
  Refuse(client, hello, status);
}

absl::Status Listener::TakeVouch(Client& client, const transport::Vouch& vouch) const {
  Tenant& tenant = client.peer.tenant;
  if (tenant.uid != 0 && tenant.uid != geteuid() && tenant.uid != options_.gateway_uid)
    return absl::PermissionDeniedError(absl::StrCat("user ", tenant.uid,
                                                    " may not speak for others; name it with xpud's "
                                                    "--gateway-user"));
  tenant.name = transport::GetText(vouch.tenant);
  return absl::OkStatus();
}

void Listener::TakeMemory(scheduler::Engine& engine, uint64_t key, Client& client) {
  const absl::Status status = ReceiveMemory(engine, key, client);
  if (status.ok()) return;
  engine.Post([&engine, id = client.session, reason = std::string(status.message())] {
    engine.CloseForFault(id, reason);
  });
  shutdown(client.socket.get(), SHUT_RDWR);
}

absl::Status Listener::ReceiveMemory(scheduler::Engine& engine, uint64_t key, Client& client) {
  transport::ShareMemory message;
  UniqueFd fd;
  const absl::Status received = transport::ReceiveMessage(
      client.socket.get(), std::as_writable_bytes(std::span(&message, 1)), {&fd, 1});
  if (absl::IsResourceExhausted(received)) {
    Answer(engine, key, message.id, received);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(received);
  if (message.magic != transport::kShareMagic || !fd.valid())
    return absl::InvalidArgumentError("it sent an invalid message after its Hello");
  RETURN_IF_ERROR(Watch(epoll_.get(), client.socket.get(), EPOLLRDHUP, SocketTag(key), EPOLL_CTL_MOD));
  auto accepted = transport::ClientMemory::Accept(std::move(fd), message.bytes);
  if (!accepted.ok()) {
    Answer(engine, key, message.id, accepted.status());
    return absl::OkStatus();
  }
  const auto memory = std::make_shared<transport::ClientMemory>(*std::move(accepted));
  engine.Post([this, &engine, key, message, memory, session = client.session] {
    const auto found = engine.sessions().find(session);
    if (found == engine.sessions().end()) return;
    const absl::Status shared = found->second->ShareHostMemory(
        message.id, message.devices, std::move(*memory),
        [this, &engine, key, id = message.id](const absl::Status& status) {
          Post([this, &engine, key, id, status] { Answer(engine, key, id, status); });
        });
    if (!shared.ok()) engine.CloseForFault(session, std::string(shared.message()));
  });
  return absl::OkStatus();
}

void Listener::Answer(scheduler::Engine& engine, uint64_t key, uint32_t id, const absl::Status& status) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  transport::ShareMemoryAnswer answer = {id, static_cast<uint32_t>(status.code()), {}};
  transport::SetText(answer.text, std::string_view(status.message().data(), status.message().size()));
  const UniqueFd& socket = found->second.socket;
  absl::Status sent = transport::SendMessage(socket.get(), std::as_bytes(std::span(&answer, 1)));
  if (sent.ok())
    sent = Watch(epoll_.get(), socket.get(), EPOLLIN | EPOLLRDHUP, SocketTag(key), EPOLL_CTL_MOD);
  if (!sent.ok()) Drop(engine, key, "it does not read its answers");
}

void Listener::Drop(scheduler::Engine& engine, uint64_t key, const char* reason) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  if (const uint64_t id = found->second.session; id != 0) {
    engine.Post([&engine, id, reason] { engine.CloseSession(id, reason); });
    spdlog::info("session_closed id={} pid={} reason=\"{}\"", id, found->second.peer.pid, reason);
  }
  places_.Release(found->second.peer.tenant.uid);
  clients_.erase(found);
  last_client_ = Clock::now();
}

void Listener::HandleEvent(scheduler::Engine& engine, uint64_t tag, uint32_t events) {
  if (tag == kListenTag) return Accept();
  if (tag == kInboxTag) return RunTasks();
  const uint64_t key = tag >> 1;
  if (tag == ProcessTag(key)) return Drop(engine, key, "its process ended");
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) return Drop(engine, key, "it hung up");
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  if (found->second.session != 0) return TakeMemory(engine, key, found->second);
  Greet(engine, found->second);
}

void Listener::DropSilentClients(scheduler::Engine& engine) {
  std::vector<uint64_t> silent;
  for (const auto& [key, client] : clients_) {
    if (client.session == 0 && Clock::now() - client.accepted > kHelloTimeout) silent.push_back(key);
  }
  for (const uint64_t key : silent) Drop(engine, key, "it sent no Hello");
}

bool Listener::IsIdleTooLong() const {
  return limits_.exit_when_idle && clients_.empty() && Clock::now() - last_client_ > *limits_.exit_when_idle;
}

bool Listener::TakeSignals() {
  signalfd_siginfo signal;
  while (read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
    if (signal.ssi_signo != SIGHUP) return false;
    options_.on_hangup();
  }
  return true;
}

void Listener::SetLimits(const Limits& limits) {
  limits_ = limits;
  places_.SetMaxPerUser(limits.user_clients);
}

void Listener::Serve(scheduler::Engine& engine) {
  std::array<epoll_event, 32> events;
  last_client_ = Clock::now();  // counted from now, because opening devices may take long
  do {  // at least once: clients that wait at a handed-over socket are accepted before we end
    const bool timed = limits_.exit_when_idle.has_value() || !clients_.empty();
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timed ? 1000 : -1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kSignalTag) {
        if (!TakeSignals()) return;
        continue;
      }
      HandleEvent(engine, events[i].data.u64, events[i].events);
    }
    DropSilentClients(engine);
  } while (!IsIdleTooLong());
  spdlog::info("daemon_idle seconds={}", limits_.exit_when_idle->count());
}

}  // namespace xpud::service
