#include "daemon/telemetry/metrics_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::telemetry {
namespace {

using Clock = Connection::Clock;

constexpr auto kPause = std::chrono::milliseconds(50);  // after a connection could not get a descriptor

}  // namespace

MetricsServer::MetricsServer(Endpoint endpoint, Snapshot snapshot, Connection::Pages pages)
    : endpoint_(std::move(endpoint)),
      snapshot_(std::move(snapshot)),
      pages_(std::move(pages)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(Endpoint endpoint, Snapshot snapshot,
                                                                    Connection::Pages pages) {
  std::unique_ptr<MetricsServer> server(
      new MetricsServer(std::move(endpoint), std::move(snapshot), std::move(pages)));
  if (!server->epoll_.valid() || !server->stop_.valid() ||
      !server->Watch(server->stop_.get(), EPOLLIN, &server->stop_, EPOLL_CTL_ADD) ||
      !server->Watch(server->endpoint_.socket.get(), EPOLLIN, nullptr, EPOLL_CTL_ADD))
    return absl::ErrnoToStatus(errno, "cannot create the epoll set for metrics");
  ASSIGN_OR_RETURN(server->thread_, StartThread("xpud-metrics", [raw = server.get()] { raw->Main(); }));
  return server;
}

MetricsServer::~MetricsServer() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

bool MetricsServer::Watch(int fd, uint32_t events, void* tag, int operation) {
  epoll_event event = {};
  event.events = events;
  event.data.ptr = tag;
  return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

// Handles one event per wait, because each may end other connections.
void MetricsServer::Main() {
  while (true) {
    epoll_event event = {};
    const int count = epoll_wait(epoll_.get(), &event, 1, MillisecondsToWait());
    if (count > 0 && event.data.ptr == &stop_) return;
    if (count > 0 && event.data.ptr == nullptr) Accept();
    if (count > 0 && event.data.ptr != nullptr) {
      Advance(std::find_if(connections_.begin(), connections_.end(),
                           [&](const Connection& c) { return &c == event.data.ptr; }));
    }
    DropLate();
  }
}

void MetricsServer::Accept() {
  UniqueFd fd(accept4(endpoint_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kPause);
    return;
  }
  if (connections_.size() == kMaxConnections) connections_.pop_front();
  Connection& connection = connections_.emplace_back(std::move(fd), Clock::now() + kMaxTime);
  if (!Watch(connection.socket(), connection.events(), &connection, EPOLL_CTL_ADD)) connections_.pop_back();
}

void MetricsServer::Advance(Connections::iterator connection) {
  if (connection == connections_.end()) return;
  const uint32_t before = connection->events();
  const bool goes_on = connection->Advance([this](Format format) { return Metrics(format); }, pages_);
  const bool waits =
      goes_on && (connection->events() == before ||
                  Watch(connection->socket(), connection->events(), &*connection, EPOLL_CTL_MOD));
  if (!waits) connections_.erase(connection);
}

void MetricsServer::DropLate() {
  const auto now = Clock::now();
  while (!connections_.empty() && connections_.front().deadline() <= now) connections_.pop_front();
}

int MetricsServer::MillisecondsToWait() const {
  if (connections_.empty()) return -1;
  const auto rest = connections_.front().deadline() - Clock::now();
  return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(rest).count()));
}

Connection::Body MetricsServer::Metrics(Format format) {
  if (latest_ == nullptr || Clock::now() - taken_ > kFresh) {
    latest_ = snapshot_();
    taken_ = Clock::now();
    texts_ = {};
  }
  Connection::Body& text = texts_[static_cast<size_t>(format)];
  if (text == nullptr) text = std::make_shared<const std::string>(latest_(format));
  return text;
}

}  // namespace xpud::telemetry
