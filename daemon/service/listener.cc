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
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/service/client_profile.h"
#include "daemon/service/socket_file.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/mapping.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"
#include "proto/transport/shm_server.h"

namespace xpud::service {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kListenTag = 1, kSignalTag = 2, kInboxTag = 3;
constexpr char kInvalidMessage[] = "it sent an invalid message after its Hello";
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
  const auto found = std::find_if(clients_.begin(), clients_.end(), [&](const auto& entry) {
    return entry.second.session != nullptr && entry.second.session->id() == session;
  });
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

// Accepts one connection, tells it why and closes it. If it stayed pending, this thread would spin and the
// client would wait.
bool Listener::RefuseOne() {
  spare_.Reset();
  UniqueFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
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

// Sends a client with our protocol the reason why it gets no session.
void Listener::Refuse(const Client& client, const transport::Hello& hello, const absl::Status& why) {
  spdlog::warn("client_refused pid={} tenant={} reason=\"{}\"", client.peer.pid, client.peer.tenant.Text(),
               std::string(why.message()));
  if (hello.magic == transport::kHelloMagic || hello.magic == transport::kVouchMagic)
    SendRefusal(client.socket.get(), why);
  shutdown(client.socket.get(), SHUT_RDWR);  // the hang-up drops the client
}

absl::Status Listener::OpenSession(lane::Lanes& lanes, Client& client, const transport::Hello& hello) {
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
  welcome.ring_bytes = transport::kRingBytes;
  welcome.staging_bytes = transport::kStagingBytes;
  welcome.rows = ops::KnownRows();
  transport::SetText(welcome.text, XPUD_VERSION);
  welcome.device_count = static_cast<uint16_t>(lanes.size());
  bool has_executors = false;
  for (size_t d = 0; d < lanes.size(); ++d) {
    const executor::DeviceProperties& properties = lanes[static_cast<uint32_t>(d)].properties();
    transport::DeviceRecord& record = welcome.devices[d];
    transport::SetText(record.name, properties.name);
    transport::SetText(record.kind, properties.kind);
    transport::SetText(record.vendor, properties.vendor);
    record.total_memory = properties.total_memory;
    record.compute_units = properties.compute_units;
    has_executors |= properties.replaceable;
  }
  auto host = std::make_shared<handles::HostMemories>(limits_.host_memory, has_executors);
  ASSIGN_OR_RETURN(client.session, lanes.registry().Add(client.peer, std::move(host)));
  welcome.session_id = client.session->id();
  return transport::SendMessage(client.socket.get(), std::as_bytes(std::span(&welcome, 1)));
}

void Listener::Greet(lane::Lanes& lanes, Client& client) {
  transport::Hello hello = {};
  absl::Status status =
      transport::ReceiveMessage(client.socket.get(), std::as_writable_bytes(std::span(&hello, 1)));
  if (status.ok() && hello.magic == transport::kVouchMagic) {
    status = TakeVouch(client, std::bit_cast<transport::Vouch>(hello));
    if (status.ok()) return;  // its Hello follows
  }
  if (status.ok() && hello.magic == transport::kViewMagic) {
    status = ShowSessions(client);
    if (status.ok()) return;
  }
  if (status.ok()) status = OpenSession(lanes, client, hello);
  if (status.ok()) {
    spdlog::info("session_opened id={} pid={} tenant={} name=\"{}\"", client.session->id(), client.peer.pid,
                 client.peer.tenant.Text(), absl::Utf8SafeCEscape(client.peer.name));
    return;
  }
  Refuse(client, hello, status);
}

absl::Status Listener::ShowSessions(Client& client) {
  const Tenant& viewer = client.peer.tenant;
  std::erase_if(ending_views_, [](const EndingView& view) {
    return view.ended.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  size_t views = ending_views_.size(), own = 0;
  for (const EndingView& view : ending_views_) own += view.uid == viewer.uid;
  for (const auto& [key, each] : clients_) {
    if (each.view == nullptr) continue;
    ++views;
    own += each.peer.tenant.uid == viewer.uid;
  }
  int ends[2];
  absl::Status status;
  UniqueFd theirs;
  if (views >= kMaxViews || own >= kMaxViewsPerUser) {
    status = absl::ResourceExhaustedError(
        absl::StrCat(own, " processes of user ", viewer.uid, " see its sessions, and ", views,
                     " of all users; at most ", kMaxViewsPerUser, " and ", kMaxViews, " may"));
  } else if (options_.show == nullptr) {
    status = absl::UnimplementedError("this daemon has no control plane");
  } else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    status = DescriptorError("socketpair");
  } else {
    theirs.Reset(ends[0]);
    auto view = options_.show(viewer, UniqueFd(ends[1]));
    status = view.status();
    if (view.ok()) client.view = *std::move(view);
  }
  const transport::Answer answer = transport::MakeAnswer(0, status);
  const int sent[] = {theirs.get()};
  RETURN_IF_ERROR(transport::SendMessage(client.socket.get(), std::as_bytes(std::span(&answer, 1)),
                                         std::span(sent).first(status.ok() ? 1 : 0)));
  return status;
}

void Listener::EndView(uint32_t uid, std::unique_ptr<UserView> view) {
  try {
    ending_views_.push_back(
        {uid, std::async(std::launch::async, [ended = std::move(view)]() mutable { ended.reset(); })});
  } catch (const std::system_error& error) {  // the view was destroyed here
    spdlog::warn("view_ended_without_thread uid={} reason=\"{}\"", uid, error.what());
  }
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

void Listener::TakeRequest(lane::Lanes& lanes, uint64_t key, Client& client) {
  const absl::Status status = ReceiveRequest(lanes, key, client);
  if (status.ok()) return;
  lanes.Close(*client.session, std::string(status.message()), /*fault=*/true);
  shutdown(client.socket.get(), SHUT_RDWR);
}

absl::Status Listener::ReceiveRequest(lane::Lanes& lanes, uint64_t key, Client& client) {
  transport::Request request;
  UniqueFd memory;
  const absl::Status received = transport::ReceiveMessage(
      client.socket.get(), std::as_writable_bytes(std::span(&request, 1)), {&memory, 1});
  if (absl::IsResourceExhausted(received)) {
    Answer(lanes, key, request.id, received);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(received);
  if (memory.valid() != (request.kind == transport::RequestKind::kShareMemory))
    return absl::InvalidArgumentError(kInvalidMessage);
  // The next request is read after the answer to this one.
  RETURN_IF_ERROR(Watch(epoll_.get(), client.socket.get(), EPOLLRDHUP, SocketTag(key), EPOLL_CTL_MOD));
  switch (request.kind) {
    case transport::RequestKind::kOpenDevice:
      return OpenDevice(lanes, key, client, request.id);
    case transport::RequestKind::kShareMemory:
      return ShareMemory(lanes, key, client, request, std::move(memory));
    case transport::RequestKind::kStartProfile:
      return StartProfile(lanes, key, client, request);
    case transport::RequestKind::kStopProfile:
      return StopProfile(lanes, key, client, request);
  }
  return absl::InvalidArgumentError(kInvalidMessage);
}

absl::Status Listener::OpenDevice(lane::Lanes& lanes, uint64_t key, const Client& client, uint32_t device) {
  if (device >= lanes.size()) return absl::InvalidArgumentError("it opened a device that does not exist");
  const auto fds = std::make_shared<transport::DeviceFds>();
  auto server = transport::ShmServer::Create(*fds);
  if (!server.ok()) {
    Answer(lanes, key, device, server.status());
    return absl::OkStatus();
  }
  lane::Lane& lane = lanes[device];
  lane.Post([this, &lanes, &lane, key, device, fds, session = client.session,
             transport = std::shared_ptr<transport::ServerTransport>(*std::move(server))] {
    const absl::Status opened = lane.Open(session, transport);
    Post([this, &lanes, key, device, fds, opened] {
      if (!opened.ok()) return Answer(lanes, key, device, opened);
      const int sent[] = {fds->ring.get(), fds->completion.get(), fds->staging.get(), fds->doorbell.get()};
      Answer(lanes, key, device, opened, sent);
    });
  });
  return absl::OkStatus();
}

absl::Status Listener::StartProfile(lane::Lanes& lanes, uint64_t key, const Client& client,
                                    const transport::Request& request) {
  if (request.id >= lanes.size() || !client.session->IsOpen(request.id))
    return absl::InvalidArgumentError("it profiles a device that is not open");
  if (request.bytes == 0 || request.bytes > transport::kMaxProfileCommands) {
    Answer(lanes, key, request.id,
           absl::InvalidArgumentError(absl::StrCat(
               "a profile of ", request.bytes, " commands; it keeps 1 to ", transport::kMaxProfileCommands)));
    return absl::OkStatus();
  }
  lane::Lane& lane = lanes[request.id];
  lane.Post([this, &lanes, &lane, key, request, session = client.session->id()] {
    const absl::Status started = lane.profiles().StartForClient(session, request.bytes);
    lane.profiles().Settle([this, &lanes, key, request, started] {
      Post([this, &lanes, key, request, started] { Answer(lanes, key, request.id, started); });
    });
  });
  return absl::OkStatus();
}

absl::Status Listener::StopProfile(lane::Lanes& lanes, uint64_t key, const Client& client,
                                   const transport::Request& request) {
  if (request.id >= lanes.size() || !client.session->IsOpen(request.id))
    return absl::InvalidArgumentError("it profiles a device that is not open");
  lane::Lane& lane = lanes[request.id];
  lane.Post([this, &lanes, &lane, key, request, session = client.session->id()] {
    lane.profiles().StopForClient(session);
    lane.profiles().Settle([this, &lanes, &lane, key, request, session] {
      lane.profiles().TakeForClient(session, [this, &lanes, key, request](const trace::Profile* profile) {
        absl::StatusOr<UniqueFd> written = absl::FailedPreconditionError("no profile was started");
        if (profile != nullptr) written = transport::WriteProfile(ForClient(*profile));
        Post([this, &lanes, key, request,
              memory = std::make_shared<absl::StatusOr<UniqueFd>>(std::move(written))] {
          SendProfile(lanes, key, request, std::move(*memory));
        });
      });
    });
  });
  return absl::OkStatus();
}

void Listener::SendProfile(lane::Lanes& lanes, uint64_t key, const transport::Request& request,
                           absl::StatusOr<UniqueFd> memory) {
  const auto client = clients_.find(key);
  if (client == clients_.end()) return;
  if (!memory.ok()) return Answer(lanes, key, request.id, memory.status());
  const int sent[] = {memory->get()};
  UniqueFd& kept = client->second.profiles[request.id];
  if (kept.valid()) Empty(lanes, request.id, std::move(kept));
  kept = *std::move(memory);
  Answer(lanes, key, request.id, absl::OkStatus(), sent);
}

void Listener::Empty(lane::Lanes& lanes, uint32_t device, UniqueFd profile) {
  lane::Lane& lane = lanes[device];
  lane.Post([&lane, memory = std::make_shared<UniqueFd>(std::move(profile))] {
    lane.profiles().RunAside([memory] { EmptyMemfd(*memory); });
  });
}

absl::Status Listener::ShareMemory(lane::Lanes& lanes, uint64_t key, const Client& client,
                                   const transport::Request& request, UniqueFd memory) {
  if (request.id == 0) return absl::InvalidArgumentError("host memory was shared under the id 0");
  if (request.devices == 0) return absl::InvalidArgumentError("host memory was shared with no device");
  for (uint64_t rest = request.devices; rest != 0; rest &= rest - 1) {
    if (!client.session->IsOpen(static_cast<uint32_t>(std::countr_zero(rest))))
      return absl::InvalidArgumentError("host memory was shared with a device that is not open");
  }
  auto shared = handles::HostMemories::Add(client.session->host_memories(), request.id, std::move(memory),
                                           request.bytes);
  if (!shared.ok()) {
    Answer(lanes, key, request.id, shared.status());
    return absl::OkStatus();
  }
  // Answered when the last device has it. Each lane's thread counts its device.
  struct Awaited {
    explicit Awaited(int count) : devices(count) {}
    Mutex mutex;
    int devices ABSL_GUARDED_BY(mutex);
    absl::Status failure ABSL_GUARDED_BY(mutex);
  };
  const auto awaited = std::make_shared<Awaited>(std::popcount(request.devices));
  const auto done = [this, &lanes, key, id = request.id, awaited](const absl::Status& status) {
    MutexLock lock(awaited->mutex);
    awaited->failure.Update(status);
    if (--awaited->devices != 0) return;
    Post([this, &lanes, key, id, status = awaited->failure] { Answer(lanes, key, id, status); });
  };
  for (uint64_t rest = request.devices; rest != 0; rest &= rest - 1) {
    lane::Lane& lane = lanes[static_cast<uint32_t>(std::countr_zero(rest))];
    lane.Post([&lanes, &lane, session = client.session, id = request.id, memory = *shared, done] {
      session::DeviceSession* const on_device = lane.Find(session->id());
      if (on_device == nullptr) return;  // the session is being closed
      const absl::Status status = on_device->ShareHostMemory(id, memory, done);
      if (!status.ok()) lanes.Evict(*session, std::string(status.message()), /*fault=*/true);
    });
  }
  return absl::OkStatus();
}

void Listener::Answer(lane::Lanes& lanes, uint64_t key, uint32_t id, const absl::Status& status,
                      std::span<const int> fds) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  const UniqueFd& socket = found->second.socket;
  const transport::Answer answer = transport::MakeAnswer(id, status);
  absl::Status sent = transport::SendMessage(socket.get(), std::as_bytes(std::span(&answer, 1)), fds);
  if (sent.ok())
    sent = Watch(epoll_.get(), socket.get(), EPOLLIN | EPOLLRDHUP, SocketTag(key), EPOLL_CTL_MOD);
  if (!sent.ok()) Drop(lanes, key, "it does not read its answers");
}

void Listener::Drop(lane::Lanes& lanes, uint64_t key, const char* reason) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  if (found->second.session != nullptr) lanes.Close(*found->second.session, reason);
  if (found->second.view != nullptr) EndView(found->second.peer.tenant.uid, std::move(found->second.view));
  for (auto& [device, profile] : found->second.profiles) Empty(lanes, device, std::move(profile));
  places_.Release(found->second.peer.tenant.uid);
  clients_.erase(found);
  last_client_ = Clock::now();
}

void Listener::HandleEvent(lane::Lanes& lanes, uint64_t tag, uint32_t events) {
  if (tag == kListenTag) return Accept();
  if (tag == kInboxTag) return RunTasks();
  const uint64_t key = tag >> 1;
  if (tag == ProcessTag(key)) return Drop(lanes, key, "its process ended");
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) return Drop(lanes, key, "it hung up");
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  if (found->second.session != nullptr) return TakeRequest(lanes, key, found->second);
  if (found->second.view != nullptr) return Drop(lanes, key, "it sent more than it may");
  Greet(lanes, found->second);
}

void Listener::DropSilentClients(lane::Lanes& lanes) {
  std::vector<uint64_t> silent;
  for (const auto& [key, client] : clients_) {
    if (client.session == nullptr && client.view == nullptr && Clock::now() - client.accepted > kHelloTimeout)
      silent.push_back(key);
  }
  for (const uint64_t key : silent) Drop(lanes, key, "it sent no Hello");
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

void Listener::Serve(lane::Lanes& lanes) {
  ServeUntilTheEnd(lanes);
  for (auto& [key, client] : clients_) client.view.reset();  // they use the lanes
  ending_views_.clear();                                     // waits for them
}

void Listener::ServeUntilTheEnd(lane::Lanes& lanes) {
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
      HandleEvent(lanes, events[i].data.u64, events[i].events);
    }
    DropSilentClients(lanes);
  } while (!IsIdleTooLong());
  spdlog::info("daemon_idle seconds={}", limits_.exit_when_idle->count());
}

}  // namespace xpud::service
