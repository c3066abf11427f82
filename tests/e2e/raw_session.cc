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
  requests_ = std::make_shared<transport::SessionSocket>(UniqueFd(dup(socket_.get())));
  staging_bytes_ = welcome.staging_bytes;
  Open(0);
}

void RawSession::Open(uint32_t device) {
  devices_[device].transport = *transport::ShmClient::Create(
      requests_, *requests_->OpenDevice(device), staging_bytes_, transport::ShmClient::Waits::kForDaemon);
}

absl::Status RawSession::Synchronize(uint32_t device) {
  return devices_[device].transport->Wait([&] { return IsDone(device); }, {});
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
  const transport::ShmClient& transport = *devices_[0].transport;
  for (int i = 0; i < 500 && transport.status().ok(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return std::string(transport.status().message());
}

}  // namespace xpud::e2e
