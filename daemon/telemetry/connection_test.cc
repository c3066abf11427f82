#include "daemon/telemetry/connection.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\n\r\n";

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    peer_.Reset(ends[0]);
    connection_ = std::make_unique<Connection>(UniqueFd(ends[1]), Connection::Clock::time_point::max());
  }
  bool Advance() {
    return connection_->Advance([this](Format) {
      ++asked_;
      return body_;
    });
  }
  void Say(std::string_view text) {
    EXPECT_EQ(send(peer_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  // Returns the bytes that have arrived.
  std::string Hear() {
    std::string heard;
    std::array<char, 65536> bytes;
    for (ssize_t count = 0; (count = recv(peer_.get(), bytes.data(), bytes.size(), 0)) > 0;)
      heard.append(bytes.data(), static_cast<size_t>(count));
    return heard;
  }

  Connection::Body body_ = std::make_shared<const std::string>("body");
  int asked_ = 0;
  UniqueFd peer_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(ConnectionTest, WaitsForARequestThatComesInParts) {
  for (const char c : kRequest) {
    EXPECT_EQ(asked_, 0);
    EXPECT_EQ(connection_->events(), EPOLLIN);
    Say({&c, 1});
    ASSERT_TRUE(Advance());
  }
  EXPECT_EQ(asked_, 1);
  EXPECT_THAT(Hear(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(ConnectionTest, WithASlowReaderWaitsUntilItReads) {
  body_ = std::make_shared<const std::string>(size_t{4} << 20, 'x');
  Say(kRequest);
  ASSERT_TRUE(Advance()) << "it must not block";
  EXPECT_EQ(connection_->events(), EPOLLOUT);
  std::string heard;
  while (connection_->events() == EPOLLOUT) {
    heard += Hear();
    ASSERT_TRUE(Advance());
  }
  heard += Hear();
  EXPECT_EQ(heard.substr(heard.find("\r\n\r\n") + 4), *body_);
  EXPECT_EQ(asked_, 1);
  peer_.Reset();
  EXPECT_FALSE(Advance());
}

TEST_F(ConnectionTest, EndsWithAPeerThatIsGone) {
  Say("GET");
  EXPECT_TRUE(Advance());
  peer_.Reset();
  EXPECT_FALSE(Advance());
}

TEST_F(ConnectionTest, AnswersARequestThatIsTooLongAndReadsOn) {
  Say("GET /metrics HTTP/1.1\r\n" + std::string(kMaxRequestBytes, 'x'));
  EXPECT_TRUE(Advance());
  EXPECT_THAT(Hear(), HasSubstr("HTTP/1.1 431 "));
  Say("more");
  EXPECT_TRUE(Advance());
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace xpud::telemetry
