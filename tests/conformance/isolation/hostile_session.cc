#include "tests/conformance/isolation/hostile_session.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "proto/base/check.h"
#include "proto/wire/encode.h"
#include "sdk/client/connect.h"
#include "sdk/client/remote.h"
#include "tests/e2e/daemon_process.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kLooks = 2000;

}  // namespace

UniqueFd ConnectTo(const std::string& address) {
  return client::IsRemoteAddress(address) ? *client::StartConnector(address, ConnectOptions())
                                          : *client::ConnectSocket(address);
}

HostileSession::HostileSession(const std::string& address, const char* name) : socket_(ConnectTo(address)) {
  transport::Hello hello = {transport::kHelloMagic, wire::kOldestVersion, wire::kNewestVersion, {}};
  transport::SetText(hello.client_name, name);
  XPUD_CHECK(transport::SendMessage(socket_.get(), std::as_bytes(std::span(&hello, 1))).ok());
  XPUD_CHECK(transport::ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&welcome_, 1))).ok());
  XPUD_CHECK(welcome_.version != 0);
  const transport::Request open = {transport::RequestKind::kOpenDevice, 0, 0, 0};
  XPUD_CHECK(transport::SendMessage(socket_.get(), std::as_bytes(std::span(&open, 1))).ok());
  transport::Answer answer;
  std::array<UniqueFd, transport::kDeviceFds> fds;
  XPUD_CHECK(
      transport::ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&answer, 1)), fds).ok());
  XPUD_CHECK(answer.code == 0);
  fds_ = {std::move(fds[0]), std::move(fds[1]), std::move(fds[2]), std::move(fds[3])};
  control_ = *Mapping::Map(fds_.ring, transport::kPageBytes, Access::kReadWrite);
  ring_ = *Mapping::MapMirrored(fds_.ring, transport::kRingBytes, Access::kReadWrite, transport::kPageBytes);
  completion_ = *Mapping::Map(fds_.completion, sizeof(transport::CompletionPage), Access::kReadOnly);
  staging_ = *Mapping::Map(fds_.staging, welcome_.staging_bytes, Access::kReadWrite);
}

void HostileSession::Put(std::span<const std::byte> command) {
  const auto has_room = [&] {
    return tail_ + command.size() - completion().head.load(std::memory_order_acquire) <=
           transport::kRingBytes;
  };
  if (!has_room()) {
    Publish();
    e2e::Within(seconds(20), [&] { return has_room() || gone(); });
  }
  std::memcpy(ring_.data() + tail_ % transport::kRingBytes, command.data(), command.size());
  tail_ += command.size();
  ++sequence_;
}

void HostileSession::PublishUpTo(uint64_t tail) {
  control().tail.store(tail, std::memory_order_seq_cst);
  control().attention.fetch_add(1, std::memory_order_relaxed);
  eventfd_write(fds_.doorbell.get(), 1);
}

bool HostileSession::gone() const {
  if (closed()) return true;
  pollfd hung_up = {socket_.get(), POLLRDHUP, 0};
  return poll(&hung_up, 1, 0) == 1;
}

absl::Status HostileSession::Settle(milliseconds limit) {
  Publish();
  const transport::QueueStatus& queue = completion().queues[0];
  const auto is_settled = [&] {
    return closed() || queue.completed.load(std::memory_order_acquire) >= sequence_;
  };
  for (int i = 0; i < kLooks && !is_settled(); ++i)
    std::this_thread::yield();  // mostly it takes microseconds
  const bool settled = e2e::Within(limit, [&] { return is_settled() || gone(); }) && is_settled();
  if (!settled && gone() && !closed()) return absl::UnavailableError("the daemon died");
  if (closed()) return absl::UnavailableError(transport::GetText(completion().reason));
  if (!settled) return absl::DeadlineExceededError("the daemon neither did the work nor refused it");
  const uint32_t errors = queue.errors.load(std::memory_order_acquire);
  if (errors == errors_seen_) return absl::OkStatus();
  errors_seen_ = errors;
  const absl::Status error(static_cast<absl::StatusCode>(queue.error_code),
                           transport::GetText(queue.message));
  Put(wire::ClearErrorCommand{
      wire::Header(wire::CommandKind::kClearError, 0, sizeof(wire::ClearErrorCommand)), errors, 0});
  Publish();
  return error;
}

std::string HostileSession::Fate() {
  const absl::Status status = Settle();
  return closed() ? std::string(status.message()) : "still open: " + status.ToString();
}

void HostileSession::Unmap() { ring_ = {}, staging_ = {}, control_ = {}; }

}  // namespace xpud::isolation
