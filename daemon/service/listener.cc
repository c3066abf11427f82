#include "daemon/service/listener.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/service/socket_file.h"
#include "daemon/service/user_view.h"
#include "proto/base/status_macros.h"
#include "proto/transport/requests.h"

namespace xpud::service {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kHelloTimeout = std::chrono::seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Create(Options options, const Claims& claims,
                                                           UniqueFd handed) {
  std::unique_ptr<Listener> listener(new Listener(std::move(options), claims));
  RETURN_IF_ERROR(listener->Open(std::move(handed)));
  return listener;
}

absl::Status Listener::Open(UniqueFd handed) {
  ASSIGN_OR_RETURN(lock_, LockBeside(options_.socket_path));
  ASSIGN_OR_RETURN(Door door, OpenDoor(options_.socket_path, options_.socket_mode, std::move(handed)));
  door.gateway_uid = options_.gateway_uid;
  RETURN_IF_ERROR(Keep(std::move(door)));
  program_.Reset(open("/proc/self/exe", O_PATH | O_CLOEXEC));
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  RETURN_IF_ERROR(poller_.Watch(signals_.get(), Poller::Source::kSignals));
  return poller_.Watch(inbox_.fd(), Poller::Source::kInbox);
}

Listener::~Listener() {
  for (const auto& [number, door] : doors_) CloseDoor(door);
}

absl::Status Listener::Keep(Door door) {
  const uint64_t number = next_door_++;
  RETURN_IF_ERROR(poller_.Watch(door.socket.get(), Poller::Source::kDoor, number));
  doors_.emplace(number, std::move(door));
  return absl::OkStatus();
}

void Listener::AddDoor(Door door) {
  inbox_.Post([this, kept = std::make_shared<Door>(std::move(door))] {
    const std::string claim = kept->claim;
    if (absl::Status status = Keep(std::move(*kept)); !status.ok())
      spdlog::error("door_unwatched claim={} error=\"{}\"", claim, std::string(status.message()));
  });
}

void Listener::CloseDoorsOf(const std::string& claim) {
  inbox_.Post(
      [this, claim] { std::erase_if(doors_, [&](const auto& each) { return each.second.claim == claim; }); });
}

void Listener::HangUp(uint64_t session) {
  inbox_.Post([this, session] {
    if (const Connection* const client = connections_.FindSession(session)) client->ShutDown();
  });
}

// ---- the handshake

// Sends a client with our protocol the reason why it gets no session.
void Listener::Refuse(const Connection& client, const transport::Hello& hello, const absl::Status& why) {
  spdlog::warn("client_refused pid={} tenant={} reason=\"{}\"", client.peer.pid, client.peer.tenant.Text(),
               std::string(why.message()));
  if (hello.magic == transport::kHelloMagic || hello.magic == transport::kVouchMagic)
    SendRefusal(client.socket.get(), why);
  client.ShutDown();
}

absl::Status Listener::OpenSession(lane::Lanes& lanes, Connection& client, const transport::Hello& hello) {
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
  const std::optional<Claim> claim = claims_.Find(client.peer.tenant);
  std::vector<uint32_t> devices = DevicesOf(client.peer.tenant, lanes);
  welcome.device_count = static_cast<uint16_t>(devices.size());
  bool has_executors = false;
  for (size_t d = 0; d < devices.size(); ++d) {
    const executor::DeviceProperties& properties = lanes[devices[d]].properties();
    transport::DeviceRecord& record = welcome.devices[d];
    transport::SetText(record.name, properties.name);
    transport::SetText(record.kind, properties.kind);
    transport::SetText(record.vendor, properties.vendor);
    record.total_memory = properties.total_memory;
    if (claim && claim->memory_most) record.total_memory = std::min(record.total_memory, *claim->memory_most);
    record.compute_units = properties.compute_units;
    record.pci_address = properties.pci_address.bits();
    has_executors |= properties.replaceable;
  }
  auto host = std::make_shared<handles::HostMemories>(limits_.host_memory, has_executors);
  ASSIGN_OR_RETURN(client.session, lanes.registry().Add(client.peer, std::move(devices), std::move(host)));
  welcome.session_id = client.session->id();
  return client.Send(std::as_bytes(std::span(&welcome, 1)));
}

void Listener::Greet(lane::Lanes& lanes, uint64_t key, Connection& client) {
  transport::Hello hello = {};
  absl::Status status =
      transport::ReceiveMessage(client.socket.get(), std::as_writable_bytes(std::span(&hello, 1)));
  if (status.ok() && hello.magic == transport::kVouchMagic) {
    status = TakeVouch(client, std::bit_cast<transport::Vouch>(hello));
    if (status.ok()) return;  // its Hello follows
  }
  if (status.ok() && hello.magic == transport::kViewMagic) {
    status = ShowSessions(key, client);
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

absl::Status Listener::ShowSessions(uint64_t key, const Connection& client) {
  const absl::StatusOr<UniqueFd> theirs = views_.Open(key, client.peer.tenant);
  const transport::Answer answer = transport::MakeAnswer(0, theirs.status());
  const int sent[] = {theirs.ok() ? theirs->get() : -1};
  RETURN_IF_ERROR(
      client.Send(std::as_bytes(std::span(&answer, 1)), std::span(sent).first(theirs.ok() ? 1 : 0)));
  return theirs.status();
}

absl::Status Listener::TakeVouch(Connection& client, const transport::Vouch& vouch) const {
  const uint32_t uid = client.peer.uid;
  if (client.at_claim)
    return absl::PermissionDeniedError("nobody may speak for others at the door of a claim");
  if (uid != 0 && uid != geteuid() && uid != client.gateway_uid)
    return absl::PermissionDeniedError(
        absl::StrCat("user ", uid, " may not speak for others; name it with xpud's --gateway-user"));
  client.peer.tenant = claims_.TenantOf({uid, transport::GetText(vouch.tenant)});
  return absl::OkStatus();
}

// ---- the loop

void Listener::Drop(lane::Lanes& lanes, uint64_t key, const char* reason) {
  const Connection* const client = connections_.Find(key);
  if (client == nullptr) return;
  if (client->session != nullptr) lanes.Close(*client->session, reason);
  views_.End(key);
  requests_->End(key);
  connections_.End(key);
  last_client_ = Clock::now();
}

void Listener::HandleEvent(lane::Lanes& lanes, const Poller::Event& event) {
  switch (event.source) {
    case Poller::Source::kSignals:
      ends_ |= !TakeSignals();
      return;
    case Poller::Source::kInbox:
      return inbox_.Run();
    case Poller::Source::kDoor:
      if (const auto door = doors_.find(event.number); door != doors_.end())
        connections_.AcceptAt(door->second);
      return;
    case Poller::Source::kProcess:
      return Drop(lanes, event.number, "its process ended");
    case Poller::Source::kSocket:
      break;
  }
  const uint64_t key = event.number;
  if (event.hung_up) return Drop(lanes, key, "it hung up");
  Connection* const client = connections_.Find(key);
  if (client == nullptr) return;
  if (client->session != nullptr) return requests_->Take(key, *client);
  if (views_.Has(key)) return Drop(lanes, key, "it sent more than it may");
  Greet(lanes, key, *client);
}

void Listener::DropSilentClients(lane::Lanes& lanes) {
  for (const uint64_t key : connections_.WithoutSession(Clock::now() - kHelloTimeout))
    if (!views_.Has(key)) Drop(lanes, key, "it sent no Hello");
}

bool Listener::IsIdleTooLong() const {
  return limits_.exit_when_idle && connections_.empty() && claims_.empty() &&
         (Clock::now() - last_client_ > *limits_.exit_when_idle || IsReplaced());
}

bool Listener::IsReplaced() const {
  struct stat program = {};
  return fstat(program_.get(), &program) == 0 && program.st_nlink == 0;
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
  connections_.SetMaxPerUser(limits.user_clients);
}

void Listener::Serve(lane::Lanes& lanes) {
  requests_ = std::make_unique<Requests>(lanes, connections_, inbox_);
  ServeUntilTheEnd(lanes);
  views_.EndAll();  // they use the lanes
}

void Listener::ServeUntilTheEnd(lane::Lanes& lanes) {
  last_client_ = Clock::now();  // counted from now, because opening devices may take long
  do {  // at least once: clients that wait at a handed-over socket are accepted before we end
    const bool timed = limits_.exit_when_idle.has_value() || !connections_.empty();
    for (const Poller::Event& event : poller_.Wait(timed ? 1000 : -1)) {
      HandleEvent(lanes, event);
      if (ends_) return;
    }
    DropSilentClients(lanes);
  } while (!IsIdleTooLong());
  spdlog::info("daemon_idle seconds={}{}", limits_.exit_when_idle->count(),
               IsReplaced() ? " program=replaced" : "");
}

}  // namespace xpud::service
