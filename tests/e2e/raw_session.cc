#include "tests/e2e/raw_session.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "proto/base/check.h"
#include "sdk/client/connect.h"

namespace xpud::e2e {

RawSession::RawSession(const std::string& address) : socket_(*client::ConnectSocket(address)) {
  const transport::Hello hello = {transport::kHelloMagic, wire::kOldestVersion, wire::kNewestVersion, "raw"};
  XPUD_CHECK(transport::SendMessage(socket_.get(), std::as_bytes(std::span(&hello, 1))).ok());
  transport::Welcome welcome;
  XPUD_CHECK(transport::ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&welcome, 1))).ok());
  XPUD_CHECK(welcome.version != 0);
  const auto socket = std::make_shared<transport::SessionSocket>(UniqueFd(dup(socket_.get())));
  transport_ = *transport::ShmClient::Create(socket, *socket->OpenDevice(0), welcome.staging_bytes,
                                             transport::ShmClient::Waits::kForDaemon);
}

absl::Status RawSession::Synchronize() {
  return transport_->Wait([&] { return transport_->Completed(0) >= sequence_; }, {});
}

bool RawSession::SendMessage(std::span<const std::byte> message, std::span<const int> fds) const {
  return transport::SendMessage(socket_.get(), message, fds).ok();
}

transport::Answer RawSession::Answer() const {
  transport::Answer answer = {};
  const absl::Status received =
      transport::ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&answer, 1)));
  if (!received.ok()) answer.code = static_cast<uint32_t>(received.code());
  return answer;
}

std::string RawSession::Fate() const {
  for (int i = 0; i < 500 && transport_->status().ok(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return std::string(transport_->status().message());
}

}  // namespace xpud::e2e
