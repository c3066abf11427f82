#include "sdk/remote/stream_client.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/spin.h"
#include "proto/base/status_macros.h"
#include "proto/control/grpc_status.h"
#include "proto/remote/commands.h"
#include "proto/remote/credentials.h"
#include "proto/transport/barrier.h"
#include "proto/transport/futex.h"

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

absl::StatusOr<std::unique_ptr<StreamClient>> StreamClient::Create(const Options& options, uint32_t device,
                                                                   bool resumable) {
  std::unique_ptr<StreamClient> client(new StreamClient(options, device, resumable));
  client->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!client->wake_.valid()) return DescriptorError("eventfd");
  RETURN_IF_ERROR(client->receiver_.status());
  ASSIGN_OR_RETURN(client->server_, transport::ShmServer::Create(client->fds_));
  return client;
}

absl::StatusOr<StreamClient::Opened> StreamClient::OpenSession(const Options& options,
                                                               const transport::Hello& hello) {
  Opened opened;
  const bool wants_resumable = options.reconnect.count() > 0;
  ASSIGN_OR_RETURN(opened.stream, Create(options, 0, wants_resumable));
  ClientFrame greeting;
  greeting.head.set_hello(&hello, sizeof(hello));
  greeting.head.set_resumable(wants_resumable);
  ASSIGN_OR_RETURN(const ServerFrame answer, opened.stream->OpenLink(greeting, options.timeout));
  absl::Status other_version =
      absl::InternalError("the gateway does not support this version of xpud's protocol");
  if (answer.head.welcome().size() != sizeof(opened.welcome)) return other_version;
  std::memcpy(&opened.welcome, answer.head.welcome().data(), sizeof(opened.welcome));
  if (opened.welcome.staging_bytes != transport::kStagingBytes ||
      opened.welcome.ring_bytes != transport::kRingBytes)
    return other_version;
  opened.key = opened.stream->key_ = answer.head.key();
  opened.resumable = opened.stream->resumable_ = answer.head.held_ms() != 0;
  opened.stream->StartToReceive();
  return opened;
}

absl::StatusOr<std::unique_ptr<StreamClient>> StreamClient::OpenDevice(const Options& options,
                                                                       const std::string& key, bool resumable,
                                                                       uint32_t device) {
  ASSIGN_OR_RETURN(auto stream, Create(options, device, resumable));
  stream->key_ = key;
  stream->resumable_ = resumable;
  ClientFrame greeting;
  greeting.head.set_key(key);
  greeting.head.set_device(device);
  greeting.head.set_opens(true);
  RETURN_IF_ERROR(stream->OpenLink(greeting, options.timeout).status());
  stream->StartToReceive();
  return stream;
}

absl::Status StreamClient::SetNice(const Options& options, const std::string& key, uint32_t nice) {
  ASSIGN_OR_RETURN(const auto stream, Create(options, 0, /*resumable=*/false));
  ClientFrame greeting;
  greeting.head.set_key(key);
  greeting.head.set_nice(nice);
  return stream->OpenLink(greeting, options.timeout).status();
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

void StreamClient::StartToReceive() {
  down_.store(false);
  link_->SetTaker([this](const grpc::ByteBuffer* message) { return HasArrived(message); });
  link_->ReadOn();
}

StreamClient::~StreamClient() {
  if (link_ != nullptr) link_->Cancel();
  (void)CloseLink();
}

void StreamClient::Close(std::string_view why, transport::ClosedWord word) {
  {
    MutexLock lock(mutex_);
    if (closed_.load()) return;
    why_closed_ = why;
    closed_as_.store(word);
    closed_.store(true);
  }
  server_->Close(why, word);
  WakeSender();
}

void StreamClient::Leave() {
  left_.store(true);
  WakeSender();
}

void StreamClient::Cut() {
  std::shared_ptr<ClientCall> link;
  {
    MutexLock lock(mutex_);
    link = link_;
  }
  if (link != nullptr) link->Cancel();
}

void StreamClient::WakeSender() { eventfd_write(wake_.get(), 1); }

void StreamClient::SetLink(std::shared_ptr<ClientCall> link) {
  MutexLock lock(mutex_);
  link_ = std::move(link);
}

std::string StreamClient::Run() {
  while (true) {
    SendLoop();
    if (left_) {
      ClientFrame end;
      end.head.set_ends(true);
      Send(end);
    }
    if (left_ || closed_) link_->WritesDone();
    const absl::Status lost = CloseLink();  // the other end hangs up, or keep-alive fails
    if (!left_ && !closed_) {
      const absl::Status status = Reconnect(lost);
      if (!status.ok() && !left_)
        Close({status.message().data(), status.message().size()}, transport::kDaemonEnded);
    }
    if (link_ != nullptr) continue;
    MutexLock lock(mutex_);
    return why_closed_;
  }
}

void StreamClient::SendLoop() {
  auto last_work = Clock::now();
  while (!down_.load(std::memory_order_relaxed) && !closed_ && !left_) {
    TakeWaitRequest();
    if (waits_ == 0 && Clock::now() < next_flush_) {
      std::this_thread::yield();
      continue;
    }
    const absl::StatusOr<size_t> sent = SendCommands();
    if (!sent.ok()) {
      return Close({sent.status().message().data(), sent.status().message().size()},
                   transport::kSessionClosed);
    }
    const auto now = Clock::now();
    if (*sent != 0) last_work = now;
    if (spin::kRelay.Continues(last_work, now)) {
      transport::CpuRelax();
      continue;
    }
    Sleep();
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

absl::Status StreamClient::Reconnect(const absl::Status& lost) {
  absl::Status status = lost.ok() ? absl::UnavailableError("the gateway closed it") : lost;
  const auto start = Clock::now();
  while (resumable_ && MayRetry(status)) {
    const auto rest =
        options_.reconnect - std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    if (rest.count() <= 0) break;
    status = ReconnectOnce(std::min<std::chrono::milliseconds>(rest, kMaxReconnect));
    if (status.ok()) return status;
    AwaitEvent(kRetryDelayMs, /*at_doorbell=*/false);
    if (left_ || closed_) return status;
  }
  std::string text = absl::StrCat("the connection to ", options_.address, " was lost: ", status.message());
  if (resumable_)
    absl::StrAppend(&text, " (tried to reconnect for ",
                    std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count(), " s)");
  return absl::UnavailableError(text);
}

absl::Status StreamClient::ReconnectOnce(std::chrono::milliseconds timeout) {
  ClientFrame greeting;
  greeting.head.set_key(key_);
  greeting.head.set_device(device_);
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

void StreamClient::Sleep() {
  server_->SayAsleep();
  server_->BarrierBeforeSleep();
  TakeWaitRequest();
  if (waits_ == 0 && (!server_->HasCommands() || outbox_.IsFull())) AwaitEvent(-1, !outbox_.IsFull());
  server_->Awake();
}

// Waits until something happens; with `at_doorbell`, also for commands on the ring.
void StreamClient::AwaitEvent(int timeout_ms, bool at_doorbell) {
  pollfd events[] = {{wake_.get(), POLLIN, 0}, {at_doorbell ? server_->doorbell() : -1, POLLIN, 0}};
  poll(events, 2, timeout_ms);
  eventfd_t rings;
  eventfd_read(wake_.get(), &rings);
}

}  // namespace xpud::remote
