#include "deploy/agent/grants/door.h"

#include <fcntl.h>
#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/grants/grants.grpc.pb.h"
#include "deploy/agent/grants/local_socket.h"
#include "deploy/agent/grants/request.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/mutex.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"
#include "proto/base/unix_address.h"
#include "proto/control/grpc_status.h"

namespace xpud::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSocketEvent = UINT64_MAX, kWakeEvent = UINT64_MAX - 1;
constexpr int kMaxAccepted = 16;  // then the door looks at its connections again
constexpr int kIdleMs = 300'000;
// What gRPC starts with the first server. It aborts if it cannot start a thread.
constexpr int kThreadsOfGrpc = 24;

// Root and the agent's own user have no limits of users.
bool IsOperator(uint32_t uid) { return uid == 0 || uid == geteuid(); }

// Removes what an earlier agent has left at the path.
absl::Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the attributes of ", path));
  }
  if (!S_ISSOCK(info.st_mode) || info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, S_ISSOCK(info.st_mode) ? " is a socket of uid " : " is not a socket, and belongs to uid ",
        info.st_uid, "; only a socket of uid ", geteuid(), " is replaced: remove it"));
  }
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return DescriptorError("socket");
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN)
    return absl::AlreadyExistsError(absl::StrCat("another agent listens at ", path));
  if (unlink(path.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", path));
}

absl::Status Watch(const UniqueFd& events, int fd, uint32_t what, uint64_t number) {
  epoll_event event = {.events = what, .data = {.u64 = number}};
  return epoll_ctl(events.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? absl::OkStatus()
                                                                 : DescriptorError("epoll_ctl");
}

}  // namespace

// A connection, with the gRPC server that answers on it.
class Door::Connection final : public grants::v1::Grants::CallbackService, public Calls {
 public:
  // The door is woken when the caller has hung up and the last call has ended.
  Connection(Door& door, Caller caller, UniqueFd socket)
      : door_(door), caller_(std::move(caller)), socket_(std::move(socket)) {}

  absl::Status Serve(UniqueFd socket) {
    RETURN_IF_ERROR(CheckThreadsLeft(kThreadsOfGrpc, "a connection for grants"));
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxMessage);
    // A few compressed bytes may become many.
    builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
    builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCalls);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
    builder.RegisterService(this);
    if (door_.make_service_) service_ = door_.make_service_(caller_, *this);
    if (service_ != nullptr) builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("cannot serve a connection");
    grpc::AddInsecureChannelFromFd(server_.get(), socket.Release());
    return absl::OkStatus();
  }
  ~Connection() override {
    if (server_ != nullptr) server_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const Caller& caller() const { return caller_; }
  int socket() const { return socket_.get(); }
  // Calls that arrive from now on are refused.
  void HangUp() {
    const MutexLock lock(mutex_);
    hung_up_ = true;
  }
  bool HasEnded() {
    const MutexLock lock(mutex_);
    return hung_up_ && calls_ == 0;
  }

  grpc::ServerUnaryReactor* Grant(grpc::CallbackServerContext* context,
                                  const grants::v1::GrantRequest* request,
                                  grants::v1::GrantResponse* response) override {
    return AnswerGrants(*context, "grant", request, response, &Desk::Grant);
  }
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const grants::v1::RenewRequest* request,
                                  grants::v1::RenewResponse* response) override {
    return AnswerGrants(*context, "renew", request, response, &Desk::Renew);
  }
  grpc::ServerUnaryReactor* Return(grpc::CallbackServerContext* context,
                                   const grants::v1::ReturnRequest* request,
                                   grants::v1::ReturnResponse* response) override {
    return AnswerGrants(*context, "return", request, response, &Desk::Return);
  }
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const grants::v1::ListRequest* request,
                                 grants::v1::ListResponse* response) override {
    return AnswerGrants(*context, "list", request, response, &Desk::List);
  }
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const Call& call,
                                   std::function<absl::Status()> work) override {
    grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
    if (absl::Status taken = TakeCall(); !taken.ok()) {
      reactor->Finish(ToGrpc(taken));
      return reactor;
    }
    const auto began = Clock::now();
    call.turns->Add(
        call.user, call.pace, [=, this, &context, work = std::move(work)](const absl::Status& turn) {
          absl::Status status = turn;
          if (turn.ok()) status = context.IsCancelled() ? absl::CancelledError("the caller is gone") : work();
          door_.counters_.AddCall(std::string(call.engine), call.action, status, Clock::now() - began);
          if (IsFinal(status)) context.AddTrailingMetadata(kRefusalKey, kFinalRefusal);
          CallEnds();  // afterwards this may go, but not what gRPC holds for the call
          reactor->Finish(ToGrpc(status));
        });
    return reactor;
  }

 private:
  // Has the desk answer a call in the user's next turn.
  template <typename Request, typename Response, typename Method>
  grpc::ServerUnaryReactor* AnswerGrants(grpc::CallbackServerContext& context, const char* action,
                                         const Request* request, Response* response, Method method) {
    const Call call = {.engine = kGrantsEngine,
                       .action = action,
                       .turns = &door_.turns_,
                       .user = caller_.uid,
                       .pace = IsOperator(caller_.uid) ? Turns::Pace::kUnlimited : Turns::Pace::kLimited};
    return Answer(context, call, [=, this]() -> absl::Status {
      absl::StatusOr<Response> answer = (door_.desk_.*method)(caller_, *request);
      RETURN_IF_ERROR(answer.status());
      *response = *std::move(answer);
      return absl::OkStatus();
    });
  }
  absl::Status TakeCall() {
    const MutexLock lock(mutex_);
    if (hung_up_) return absl::CancelledError("the caller is gone");
    if (calls_ >= kMaxCalls) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this connection has ", calls_, " calls, and may have ", kMaxCalls, " at a time"));
    }
    ++calls_;
    return absl::OkStatus();
  }
  void CallEnds() {
    const MutexLock lock(mutex_);
    if (--calls_ == 0 && hung_up_) eventfd_write(door_.wake_.get(), 1);
  }

  Door& door_;
  const Caller caller_;
  const UniqueFd socket_;  // a copy of gRPC's descriptor, which shows that the caller has hung up
  Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hung_up_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Service> service_;  // beside Grants
  std::unique_ptr<grpc::Server> server_;
};

Door::Door(std::string path, Desk& desk, Turns& turns, Counters& counters, MakeService make_service)
    : path_(std::move(path)),
      desk_(desk),
      turns_(turns),
      counters_(counters),
      make_service_(std::move(make_service)) {}

absl::StatusOr<std::unique_ptr<Door>> Door::Open(const std::string& path, Desk& desk, Turns& turns,
                                                 Counters& counters, MakeService make_service) {
  std::unique_ptr<Door> door(new Door(path, desk, turns, counters, std::move(make_service)));
  RETURN_IF_ERROR(door->Listen());
  ASSIGN_OR_RETURN(door->thread_, StartThread("xpud-door", [raw = door.get()] { raw->Run(); }));
  spdlog::info("grants_served socket={}", path);
  return door;
}

absl::Status Door::Listen() {
  RETURN_IF_ERROR(CheckFolderIsOurs(std::filesystem::path(path_).parent_path().string()));
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path_));
  RETURN_IF_ERROR(RemoveStale(path_, address));
  events_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!events_.valid()) return DescriptorError("epoll_create1");
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return DescriptorError("eventfd");
  socket_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid()) return DescriptorError("socket");
  if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot bind ", path_));
  listens_ = true;
  if (chmod(path_.c_str(), 0666) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot set the mode of ", path_));
  if (listen(socket_.get(), 128) != 0) return DescriptorError("listen");
  RETURN_IF_ERROR(Watch(events_, wake_.get(), EPOLLIN, kWakeEvent));
  return Watch(events_, socket_.get(), EPOLLIN, kSocketEvent);
}

Door::~Door() {
  if (thread_.joinable()) {
    ends_.store(true);
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  connections_.clear();
  if (listens_) unlink(path_.c_str());
}

void Door::AcceptSome() {
  for (int i = 0; i < kMaxAccepted; ++i) {
    UniqueFd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid() && (errno == EMFILE || errno == ENFILE))  // the connection stays pending: do not spin
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (!socket.valid()) return;
    if (absl::Status admitted = Admit(std::move(socket)); !admitted.ok()) HasRefused(admitted);
  }
}

absl::Status Door::CheckRoomFor(uint32_t uid) const {
  const auto count = [&](auto counts) {
    return static_cast<size_t>(std::ranges::count_if(
        connections_, [&](const auto& each) { return counts(each.second->caller().uid); }));
  };
  const size_t of_user = count([&](uint32_t each) { return each == uid; });
  if (IsOperator(uid)) {
    if (of_user < kMaxConnectionsOfOperator) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "uid ", uid, " has ", of_user, " connections, and may have ", kMaxConnectionsOfOperator));
  }
  const size_t of_users = count([](uint32_t each) { return !IsOperator(each); });
  if (of_user < kMaxConnectionsOfUser && of_users < kMaxConnections) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("uid ", uid, " has ", of_user, " connections, all users have ", of_users,
                   "; a user may have ", kMaxConnectionsOfUser, ", all users ", kMaxConnections));
}

absl::Status Door::Admit(UniqueFd socket) {
  ASSIGN_OR_RETURN(Caller caller, CallerAt(socket.get()));
  RETURN_IF_ERROR(CheckRoomFor(caller.uid));
  UniqueFd copy(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return DescriptorError("fcntl");
  auto connection = std::make_unique<Connection>(*this, std::move(caller), std::move(copy));
  const uint64_t number = next_++;
  RETURN_IF_ERROR(Watch(events_, connection->socket(), EPOLLRDHUP | EPOLLONESHOT, number));
  RETURN_IF_ERROR(connection->Serve(std::move(socket)));
  connections_.emplace(number, std::move(connection));
  return absl::OkStatus();
}

void Door::HasRefused(const absl::Status& why) {
  ++refused_;
  if (const auto now = Clock::now();
      now >= next_log_) {  // a user who connects in a loop does not fill the log
    spdlog::warn("grants_connections_refused count={} reason=\"{}\"", refused_, std::string(why.message()));
    refused_ = 0;
    next_log_ = now + std::chrono::seconds(10);
  }
}

void Door::RemoveEnded() {
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  std::erase_if(connections_, [](const auto& each) { return each.second->HasEnded(); });
}

void Door::Run() {
  std::array<epoll_event, 16> events;
  while (!ends_.load()) {
    const int count = epoll_wait(events_.get(), events.data(), events.size(), -1);
    for (int i = 0; i < count; ++i) {
      const uint64_t number = events[static_cast<size_t>(i)].data.u64;
      if (number == kSocketEvent) {
        AcceptSome();
      } else if (const auto found = connections_.find(number); found != connections_.end()) {
        found->second->HangUp();
      }
    }
    RemoveEnded();
  }
}

}  // namespace xpud::agent
