#include "daemon/telemetry/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>

#include "daemon/telemetry/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control/xpud.pb.h"

namespace xpud::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() {
    auto endpoint = ListenAt("0");
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    port_ = static_cast<uint16_t>(std::stoi(endpoint->address.substr(endpoint->address.find(':') + 1)));
    auto server = MetricsServer::Start(*std::move(endpoint), [this] {
      v1::GetStatusResponse snapshot;
      snapshot.mutable_daemon()->set_sessions_opened(++snapshots_);
      return [snapshot](Format format) { return MetricsText(snapshot, format); };
    });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  UniqueFd Connect() const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  std::string Ask() const {
    const UniqueFd fd = Connect();
    constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\n\r\n";
    EXPECT_EQ(send(fd.get(), kRequest.data(), kRequest.size(), 0), static_cast<ssize_t>(kRequest.size()));
    std::string answer;
    std::array<char, 4096> bytes;
    for (ssize_t count = 0; (count = recv(fd.get(), bytes.data(), bytes.size(), 0)) > 0;)
      answer.append(bytes.data(), static_cast<size_t>(count));
    return answer;
  }

  std::atomic<uint64_t> snapshots_ = 0;
  uint16_t port_ = 0;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ManyAskAtOnceAndOneSnapshotAnswersThem) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5; ++j) EXPECT_THAT(Ask(), StartsWith("HTTP/1.1 200 OK\r\n"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(snapshots_, 1);
  EXPECT_LE(snapshots_, 1 + (std::chrono::steady_clock::now() - began) / MetricsServer::kFresh);
}

TEST_F(MetricsServerTest, ASnapshotThatIsOldIsTakenAnew) {
  EXPECT_THAT(Ask(), HasSubstr("\nxpud_sessions_opened_total 1\n"));
  std::this_thread::sleep_for(MetricsServer::kFresh * 1.2);
  EXPECT_THAT(Ask(), HasSubstr("\nxpud_sessions_opened_total 2\n"));
}

TEST_F(MetricsServerTest, ConnectionsBeyondTheMostEndTheOldest) {
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < MetricsServer::kMaxConnections; ++i) silent.push_back(Connect());
  EXPECT_THAT(Ask(), StartsWith("HTTP/1.1 200 OK\r\n"));
  char byte;
  EXPECT_EQ(recv(silent.front().get(), &byte, 1, 0), 0);
  EXPECT_EQ(recv(silent.back().get(), &byte, 1, MSG_DONTWAIT), -1) << "is there";
}

TEST_F(MetricsServerTest, EndsWithWhoIsConnected) {
  const UniqueFd silent = Connect();
  EXPECT_THAT(Ask(), HasSubstr("xpud_sessions"));
  server_.reset();
  char byte;
  EXPECT_LE(recv(silent.get(), &byte, 1, 0), 0);
}

}  // namespace
}  // namespace xpud::telemetry
