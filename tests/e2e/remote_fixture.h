// The common parts of tests of remote sessions: a client, xpud-connect, xpud-gateway and a daemon, all real.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon_process.h"
#include "xpud/tensor.h"

namespace xpud::e2e {

constexpr auto kSoon = std::chrono::milliseconds(5000);

class Remote : public ::testing::Test {
 protected:
  void Open(const std::vector<std::string>& arguments = {}) {
    gateway_ = std::make_unique<GatewayProcess>(daemon_.directory(), daemon_.socket(), arguments);
  }
  absl::StatusOr<std::unique_ptr<Session>> Connect() const { return ConnectTo(gateway_->address()); }
  static absl::StatusOr<std::unique_ptr<Session>> ConnectTo(const std::string& address) {
    ConnectOptions options;
    options.address = address;
    options.client_name = "remote";
    return Session::Connect(options);
  }
  static absl::StatusOr<std::vector<float>> TryDouble(Session& session, float value) {
    const auto tensor = Tensor::FromHost(session.DefaultQueue(0), std::span<const float>(&value, 1), {1});
    if (!tensor.ok()) return tensor.status();
    const auto doubled = Mul(*tensor, 2.0);
    return doubled.ok() ? doubled->ToFloats() : doubled.status();
  }
  static float Double(Session& session, float value) {
    const auto result = TryDouble(session, value);
    return result.ok() ? (*result)[0] : -1;
  }
  // Returns why the session ended.
  static absl::Status End(Session& session, std::chrono::milliseconds limit) {
    absl::Status status;
    EXPECT_TRUE(Within(limit, [&] { return !(status = TryDouble(session, 1).status()).ok(); }));
    return status;
  }
  bool NothingIsLeft() const {
    return Within(kSoon, [&] {
      std::string sessions;
      return daemon_.StatusOf("memory_used_bytes") == 0 && daemon_.Ask("ps -o jsonl", sessions) == 0 &&
             sessions.find("client_name") == std::string::npos;
    });
  }
  // Runs `body` in a child and returns its exit status.
  static int InChild(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  DaemonProcess daemon_;
  std::unique_ptr<GatewayProcess> gateway_;
};

}  // namespace xpud::e2e
