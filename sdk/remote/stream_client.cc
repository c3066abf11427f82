#include "sdk/remote/stream_client.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/spin.h"
#include "proto/base/status_macros.h"
#include "proto/control/grpc_status.h"
#include "proto/remote/commands.h"
#include "proto/remote/credentials.h"
#include "proto/transport/barrier.h"
#include "proto/transport/futex.h"
#include "proto/transport/host_memory.h"

namespace xpud::remote {
namespace {

// Time between frames of commands that the library does not wait for.
constexpr std::chrono::microseconds kCommandInterval{50};
constexpr std::chrono::milliseconds kMaxReconnect{5000};  // per attempt
constexpr int kRetryDelayMs = 200;

// Returns true if the connection is up or was refused; the first call then reports the error.
bool AwaitConnection(grpc::Channel& channel, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::system_clock::now() + timeout;
  for (grpc_connectivity_state state;
       (state = channel.GetState(/*try_to_connect=*/true)) != GRPC_CHANNEL_READY;) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return true;
    if (!channel.WaitForStateChange(state, until)) return false;
  }
  return true;
}

// Whether another attempt may succeed. An explicit refusal is final.
bool MayRetry(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return false;
    default:
      return true;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamClient>> StreamClient::Connect(const Options& options,
                                                                    const transport::Hello& hello,
                                                                    UniqueFd socket) {
  std::unique_ptr<StreamClient> client(new StreamClient(options, std::move(socket)));
  client->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  client->ended_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!client->wake_.valid() || !client->ended_.valid()) return absl::ErrnoToStatus(errno, "eventfd failed");
  ClientFrame greeting;
  greeting.head.set_hello(&hello, sizeof(hello));
  greeting.head.set_resumable(options.reconnect.count() > 0);
  ASSIGN_OR_RETURN(const ServerFrame answer, client->OpenLink(greeting, options.timeout));
  RETURN_IF_ERROR(client->WelcomeLibrary(answer));
  client->StartToReceive();
  return client;
}

absl::StatusOr<ServerFrame> StreamClient::OpenLink(const ClientFrame& greeting,
                                                   std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const Credentials credentials, ClientCredentials());
  std::map<std::string, std::string> metadata;
  if (!credentials.token.empty()) metadata[kAuthorization] = absl::StrCat("Bearer ", credentials.token);
  const auto channel = grpc::CreateCustomChannel(options_.address, credentials.channel, ChannelArguments());
  if (!AwaitConnection(*channel, timeout))
    return absl::UnavailableError(
        absl::StrCat("no answer within ", timeout.count(), " ms (tried ", credentials.kind, ")"));
  SetLink(std::make_shared<ClientCall>(receiver_.loop(), channel, kSessionMethod, metadata));
  grpc::ByteBuffer message;
  link_->Write(Serialize(greeting));
  const bool answered = link_->Read(message);
  ServerFrame answer;
  if (answered && Parse(message, answer)) return answer;
  if (answered) link_->Cancel();
  const absl::Status why = CloseLink();
  return why.ok() ? absl::UnavailableError("it hung up") : why;
}

absl::Status StreamClient::CloseLink() {
  if (link_ == nullptr) return absl::OkStatus();
  link_->AwaitReadEnd();
  const absl::Status why = FromGrpc(link_->Finish());
  SetLink(nullptr);
  return why;
}

absl::Status StreamClient::WelcomeLibrary(const ServerFrame& answer) {
  absl::Status other_version =
      absl::InternalError("the gateway does not support this version of xpud's protocol");
  transport::Welcome welcome;
  if (answer.head.welcome().size() != sizeof(welcome)) return other_version;
  std::memcpy(&welcome, answer.head.welcome().data(), sizeof(welcome));
  transport::SessionFds fds;
  ASSIGN_OR_RETURN(server_, transport::ShmServer::Create(fds));
  if (welcome.staging_bytes != server_->staging().bytes.size() || welcome.ring_bytes != transport::kRingBytes)
    return other_version;
  key_ = answer.head.key();
  const int raw[] = {fds.ring.get(), fds.completion.get(), fds.staging.get(), fds.doorbell.get()};
  return transport::SendMessage(socket_.get(), std::as_bytes(std::span(&welcome, 1)), raw);
}

void StreamClient::StartToReceive() {
  down_.store(false);
  link_->SetTaker([this](const grpc::ByteBuffer* message) { return HasArrived(message); });
  link_->ReadOn();
}

StreamClient::~StreamClient() {
  if (link_ != nullptr) link_->Cancel();
  (void)CloseLink();
}

void StreamClient::Close(std::string_view why) {
  closed_.store(true);
  server_->Close(why);
}

void StreamClient::WakeSender() { eventfd_write(wake_.get(), 1); }

void StreamClient::SetLink(std::shared_ptr<ClientCall> link) {
  MutexLock lock(mutex_);
  link_ = std::move(link);
}

void StreamClient::Run(const UniqueFd& client) {
  std::thread watcher([&] { Watch(client.get()); });
  Serve(client.get());
  eventfd_write(ended_.get(), 1);
  watcher.join();
}

void StreamClient::Watch(int client) {
  pthread_setname_np(pthread_self(), "xpud-watch");
  pollfd events[] = {{socket_.get(), POLLRDHUP, 0}, {client, POLLIN, 0}, {ended_.get(), POLLIN, 0}};
  poll(events, 3, -1);
  if (events[2].revents != 0) return;
  left_.store(true);
  WakeSender();
  constexpr int kGraceMs = 1000;  // time for the other end to learn of the end
  while (poll(&events[2], 1, kGraceMs) == 0) {
    std::shared_ptr<ClientCall> link;
    {
      MutexLock lock(mutex_);
      link = link_;
    }
    if (link != nullptr) link->Cancel();
  }
}

void StreamClient::Serve(int client) {
  while (true) {
    SendLoop(client);
    if (left_) {
      ClientFrame end;
      end.head.set_ends(true);
      Send(end);
    }
    if (left_ || closed_) link_->WritesDone();
    const absl::Status lost = CloseLink();  // the other end hangs up, or keep-alive fails
    if (left_ || closed_) return;
    const absl::Status status = Reconnect(lost, client);
    if (left_) return;
    if (!status.ok()) return Close({status.message().data(), status.message().size()});
  }
}

void StreamClient::SendLoop(int client) {
  auto last_work = Clock::now();
  while (!down_.load(std::memory_order_relaxed) && !closed_ && !left_) {
    TakeWaitRequest();
    if (waits_ == 0 && Clock::now() < next_flush_) {
      std::this_thread::yield();
      continue;
    }
    const absl::StatusOr<size_t> sent = SendCommands();
    if (!sent.ok()) return Close({sent.status().message().data(), sent.status().message().size()});
    const auto now = Clock::now();
    if (*sent != 0) last_work = now;
    if (spin::kRelay.Continues(last_work, now)) {
      transport::CpuRelax();
      continue;
    }
    Sleep(client);
  }
}

void StreamClient::TakeWaitRequest() { waits_ = transport::CombineWaits(waits_, server_->TakeWaitRequest()); }

absl::StatusOr<size_t> StreamClient::SendCommands() {
  std::span<const std::byte> commands;
  if (!outbox_.IsFull()) {
    ASSIGN_OR_RETURN(commands, server_->Receive());
  }
  ClientFrame frame;
  {
    MutexLock lock(mutex_);
    for (v1::CreditKept& kept : kept_) *frame.head.add_kept() = std::move(kept);
    kept_.clear();
  }
  const bool counts = !commands.empty() || frame.head.kept_size() != 0;
  if (!counts && waits_ == 0 && !inbox_.WantsAcknowledgement()) return 0;
  AddPayload(commands, frame);
  frame.head.set_waits(std::exchange(waits_, 0));
  if (counts) outbox_.Number(frame);
  // A frame that cannot be written was cut off; the receiving thread learns the reason.
  Send(frame);
  if (!commands.empty()) next_flush_ = Clock::now() + kCommandInterval;
  return commands.size();
}

bool StreamClient::Send(ClientFrame& frame) {
  const uint64_t received = inbox_.received();
  frame.head.set_received(received);
  inbox_.Acknowledged(received);
  return link_->Write(Serialize(frame));
}

// The library's own commands are complete. Their upload data stays in staging until they have completed,
// which is after the data has arrived.
void StreamClient::AddPayload(std::span<const std::byte> commands, ClientFrame& frame) {
  if (commands.empty()) return;
  frame.head.set_command_bytes(commands.size());
  frame.payload.emplace_back(commands.data(), commands.size());
  const std::span<const std::byte> staging = server_->staging().bytes;
  (void)ForEachCommand(commands, [&](const wire::CommandHeader& header, std::span<const std::byte> bytes) {
    if (header.kind != wire::CommandKind::kUpload) return absl::OkStatus();
    const Part part = StagingOf<wire::UploadCommand>(bytes, staging.size());
    if (part.bytes == 0) return absl::OkStatus();
    v1::StagingPart& added = *frame.head.add_staging();
    added.set_offset(part.offset);
    added.set_bytes(part.bytes);
    frame.payload.emplace_back(staging.data() + part.offset, part.bytes, grpc::Slice::STATIC_SLICE);
    return absl::OkStatus();
  });
}

absl::Status StreamClient::Reconnect(const absl::Status& lost, int client) {
  absl::Status status = lost.ok() ? absl::UnavailableError("the gateway closed it") : lost;
  const auto start = Clock::now();
  while (!key_.empty() && MayRetry(status)) {
    const auto rest =
        options_.reconnect - std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    if (rest.count() <= 0) break;
    status = ReconnectOnce(std::min<std::chrono::milliseconds>(rest, kMaxReconnect));
    if (status.ok()) return status;
    AwaitEvent(client, kRetryDelayMs, /*at_doorbell=*/false);
    if (left_) return status;
  }
  std::string text = absl::StrCat("the connection to ", options_.address, " was lost: ", status.message());
  if (!key_.empty())
    absl::StrAppend(&text, " (tried to reconnect for ",
                    std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count(), " s)");
  return absl::UnavailableError(text);
}

absl::Status StreamClient::ReconnectOnce(std::chrono::milliseconds timeout) {
  ClientFrame greeting;
  greeting.head.set_key(key_);
  greeting.head.set_received(inbox_.received());
  ASSIGN_OR_RETURN(const ServerFrame answer, OpenLink(greeting, timeout));
  if (!outbox_.Acknowledge(answer.head.received()))
    return absl::InternalError("the gateway acknowledges frames that were never sent");
  StartToReceive();
  for (const ClientFrame& frame : outbox_.Kept()) {
    if (!link_->Write(Serialize(frame))) break;
  }
  return absl::OkStatus();
}

void StreamClient::Sleep(int client) {
  server_->SayAsleep();
  server_->BarrierBeforeSleep();
  TakeWaitRequest();
  if (waits_ == 0 && (!server_->HasCommands() || outbox_.IsFull())) AwaitEvent(client, -1, !outbox_.IsFull());
  server_->Awake();
}

// Waits until something happens; with `at_doorbell`, also for commands on the ring.
void StreamClient::AwaitEvent(int client, int timeout_ms, bool at_doorbell) {
  pollfd events[] = {{wake_.get(), POLLIN, 0},
                     {socket_.get(), POLLIN, 0},
                     {client, POLLIN, 0},
                     {at_doorbell ? server_->doorbell() : -1, POLLIN, 0}};
  poll(events, 4, timeout_ms);
  eventfd_t rings;
  eventfd_read(wake_.get(), &rings);
  if ((events[1].revents != 0 && !HandleSocket()) || events[2].revents != 0) left_.store(true);
}

// Handles the socket: the library hung up, or wants to share memory, which is impossible over a network.
bool StreamClient::HandleSocket() {
  transport::ShareMemory question = {};
  UniqueFd memory;
  if (!transport::ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&question, 1)), {&memory, 1})
           .ok())
    return false;
  transport::ShareMemoryAnswer answer = {
      question.id, static_cast<uint32_t>(absl::StatusCode::kUnimplemented), {}};
  transport::SetText(answer.text, "host memory cannot be shared with a daemon on another machine");
  return transport::SendMessage(socket_.get(), std::as_bytes(std::span(&answer, 1))).ok();
}

}  // namespace xpud::remote
