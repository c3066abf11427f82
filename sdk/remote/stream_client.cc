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
#include "proto/base/grpc_status.h"
#include "proto/base/status_macros.h"
#include "proto/remote/commands.h"
#include "proto/transport/barrier.h"
#include "proto/transport/futex.h"
#include "proto/transport/host_memory.h"
#include "sdk/remote/credentials.h"

namespace xpud::remote {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::microseconds(50);

// Whether it is there, or refused us, which the first call says in words.
bool AwaitConnection(grpc::Channel& channel, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::system_clock::now() + timeout;
  for (grpc_connectivity_state state;
       (state = channel.GetState(/*try_to_connect=*/true)) != GRPC_CHANNEL_READY;) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return true;
    if (!channel.WaitForStateChange(state, until)) return false;
  }
  return true;
}

void SetStoredWord(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamClient>> StreamClient::Connect(const std::string& address,
                                                                    const transport::Hello& hello,
                                                                    std::chrono::milliseconds timeout,
                                                                    UniqueFd socket) {
  std::unique_ptr<StreamClient> client(new StreamClient);
  client->socket_ = std::move(socket);
  RETURN_IF_ERROR(client->Open(address, hello, timeout));
  return client;
}

absl::Status StreamClient::Open(const std::string& address, const transport::Hello& hello,
                                std::chrono::milliseconds timeout) {
  address_ = address;
  ASSIGN_OR_RETURN(const Credentials credentials, ClientCredentials());
  if (!credentials.token.empty())
    context_.AddMetadata(kAuthorization, absl::StrCat("Bearer ", credentials.token));
  const auto channel = grpc::CreateCustomChannel(address, credentials.channel, ChannelArguments());
  if (!AwaitConnection(*channel, timeout))
    return absl::UnavailableError(
        absl::StrCat("nobody answers there within ", timeout.count(), " ms (asked ", credentials.kind, ")"));
  stub_ = v1::Remote::NewStub(channel);
  stream_ = stub_->Session(&context_);
  v1::ClientMessage greeting;
  greeting.set_hello(&hello, sizeof(hello));
  v1::ServerMessage answer;
  stream_->Write(greeting);
  if (!stream_->Read(&answer)) {
    const absl::Status why = FromGrpc(stream_->Finish());
    stream_.reset();
    return why.ok() ? absl::UnavailableError("it hung up") : why;
  }
  transport::Welcome welcome;
  if (answer.welcome().size() != sizeof(welcome))
    return absl::InternalError("it does not speak this version of xpud's protocol");
  std::memcpy(&welcome, answer.welcome().data(), sizeof(welcome));
  RETURN_IF_ERROR(WelcomeLibrary(welcome));
  bell_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_.valid()) return absl::ErrnoToStatus(errno, "eventfd failed");
  receiver_ = std::thread([this] { ReceiveLoop(); });
  return absl::OkStatus();
}

absl::Status StreamClient::WelcomeLibrary(const transport::Welcome& welcome) {
  transport::SessionFds fds;
  ASSIGN_OR_RETURN(server_, transport::ShmServer::Create(fds));
  if (welcome.staging_bytes != server_->staging().bytes.size() || welcome.ring_bytes != transport::kRingBytes)
    return absl::InternalError("it does not speak this version of xpud's protocol");
  const int raw[] = {fds.ring.get(), fds.completion.get(), fds.staging.get(), fds.doorbell.get()};
  return transport::SendMessage(socket_.get(), std::as_bytes(std::span(&welcome, 1)), raw);
}

StreamClient::~StreamClient() {
  told_.store(true);
  StopSending();
  if (stream_ != nullptr) context_.TryCancel();
  if (receiver_.joinable()) receiver_.join();
}

void StreamClient::StopSending() {
  stops_.store(true);
  WakeSender();
}

void StreamClient::WakeSender() {
  if (bell_.valid()) eventfd_write(bell_.get(), 1);
}

void StreamClient::Run(const UniqueFd& client) {
  auto last_work = Clock::now();
  while (!stops_.load(std::memory_order_relaxed)) {
    const absl::StatusOr<bool> sent = SendCommands();
    if (!sent.ok()) {
      server_->Close(std::string_view(sent.status().message().data(), sent.status().message().size()));
      break;
    }
    const auto now = Clock::now();
    if (*sent) last_work = now;
    if (now - last_work < kSpin) {
      transport::CpuRelax();
      continue;
    }
    Sleep(client.get());
    last_work = Clock::now();
  }
  stream_->WritesDone();
  sent_.release();
  receiver_.join();  // the other end hangs up, or is found to be gone
}

absl::StatusOr<bool> StreamClient::SendCommands() {
  ASSIGN_OR_RETURN(const std::span<const std::byte> commands, server_->Receive());
  out_.Clear();
  {
    MutexLock lock(mutex_);
    for (v1::CreditKept& kept : kept_) *out_.add_kept() = std::move(kept);
    kept_.clear();
  }
  if (commands.empty() && out_.kept_size() == 0) return false;
  AddStaging(commands, out_);
  if (!commands.empty()) out_.set_commands(commands.data(), commands.size());
  // What cannot be written was cut off: the receiver learns why.
  stream_->Write(out_);
  return true;
}

// The library's own commands are whole.
void StreamClient::AddStaging(std::span<const std::byte> commands, v1::ClientMessage& message) {
  const std::span<const std::byte> staging = server_->staging().bytes;
  (void)ForEachCommand(commands, [&](const wire::CommandHeader& header, std::span<const std::byte> bytes) {
    if (header.kind != wire::CommandKind::kUpload) return absl::OkStatus();
    const Part part = StagingOf<wire::UploadCommand>(bytes, staging.size());
    if (part.bytes == 0) return absl::OkStatus();
    v1::StagingPart& added = *message.add_staging();
    added.set_offset(part.offset);
    added.set_data(staging.data() + part.offset, part.bytes);
    return absl::OkStatus();
  });
}

void StreamClient::Sleep(int client) {
  server_->SayAsleep();
  server_->BarrierBeforeSleep();
  if (!server_->HasCommands()) {
    pollfd events[] = {{server_->doorbell(), POLLIN, 0},
                       {bell_.get(), POLLIN, 0},
                       {socket_.get(), POLLIN, 0},
                       {client, POLLIN, 0}};
    poll(events, 4, -1);
    eventfd_t rings;
    eventfd_read(bell_.get(), &rings);
    if ((events[2].revents != 0 && !AnswerSocket()) || events[3].revents != 0) {
      told_.store(true);
      stops_.store(true);
    }
  }
  server_->Awake();
}

// The library has hung up, or wants to share memory, which a network cannot.
bool StreamClient::AnswerSocket() {
  transport::ShareMemory question = {};
  UniqueFd memory;
  if (!transport::ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&question, 1)), {&memory, 1})
           .ok())
    return false;
  transport::ShareMemoryAnswer answer = {
      question.id, static_cast<uint32_t>(absl::StatusCode::kUnimplemented), {}};
  transport::SetText(answer.text, "a daemon on another machine shares no memory with its clients");
  return transport::SendMessage(socket_.get(), std::as_bytes(std::span(&answer, 1))).ok();
}

void StreamClient::ReceiveLoop() {
  pthread_setname_np(pthread_self(), "xpud-receive");
  v1::ServerMessage message;
  while (stream_->Read(&message)) Apply(message);
  StopSending();
  sent_.acquire();
  const absl::Status why = FromGrpc(stream_->Finish());
  if (told_.load()) return;
  server_->Close(absl::StrCat("the connection to ", address_,
                              " was lost: ", why.ok() ? "it was closed there" : std::string(why.message())));
}

// As the daemon's Ledger takes credit back: what the library has claimed before it sees less stays.
void StreamClient::ApplyMemory(const v1::MemoryState& memory) {
  const uint32_t device = memory.device();
  if (device >= transport::kMaxDevices) return;
  std::atomic<uint64_t>& credit = *server_->CreditWord(device);
  const uint64_t before = credit.exchange(memory.credit(), std::memory_order_seq_cst);
  server_->SetAllocatedBytes(device, memory.allocated());
  std::optional<MemoryShortage> refusal;
  if (memory.has_refusal())
    refusal = MemoryShortage{MemoryShortage::Scope{memory.refusal().scope()}, memory.refusal().limit(),
                             memory.refusal().used()};
  server_->AnswerReserve(device, memory.answered(), refusal);
  if (!memory.gives_less()) return;
  transport::IssueRemoteBarrier();
  const uint64_t claimed = server_->ClaimWord(device)->load(std::memory_order_seq_cst);
  const uint64_t kept = std::max(memory.credit(), std::min(claimed, before));
  credit.store(kept, std::memory_order_seq_cst);
  v1::CreditKept answer;
  answer.set_device(device);
  answer.set_credit(kept);
  answer.set_number(memory.number());
  {
    MutexLock lock(mutex_);
    kept_.push_back(std::move(answer));
  }
  WakeSender();
}

void StreamClient::Apply(const v1::ServerMessage& message) {
  const std::span<std::byte> staging = server_->staging().bytes;
  for (const v1::StagingPart& part : message.staging()) {
    if (part.offset() <= staging.size() && part.data().size() <= staging.size() - part.offset())
      std::memcpy(staging.data() + part.offset(), part.data().data(), part.data().size());
  }
  for (const v1::Timestamp& stamp : message.timestamps()) {
    if (stamp.slot() < wire::kMaxTimestamps)
      SetStoredWord(server_->TimestampWord(stamp.slot()), stamp.time_ns());
  }
  for (const v1::MemoryState& memory : message.memory()) ApplyMemory(memory);
  for (const v1::QueueState& queue : message.queues()) {
    if (queue.queue() >= wire::kMaxQueues) continue;
    if (queue.has_error())
      server_->RaiseError(
          queue.queue(), 0,
          absl::Status(static_cast<absl::StatusCode>(queue.error().code()), queue.error().message()));
    SetStoredWord(server_->CompletedWord(queue.queue()), queue.completed());
  }
  if (!message.closed().empty()) {
    told_.store(true);
    server_->Close(message.closed());
    StopSending();
  }
  server_->WakeClient();
}

}  // namespace xpud::remote
