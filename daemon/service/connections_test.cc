#include "daemon/service/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "proto/base/unix_address.h"
#include "proto/transport/handshake.h"

namespace xpud::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Source = Poller::Source;

class ConnectionsTest : public ::testing::Test {
 protected:
  ConnectionsTest() { door_.gateway_uid = 7; }
  ~ConnectionsTest() override {
    CloseDoor(door_);
    rmdir(folder_.c_str());
  }

  // A client that connects, and is accepted if there is room.
  UniqueFd Connect() {
    UniqueFd client(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const sockaddr_un address = *UnixAddress(folder_ + "/socket");
    EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    connections_.AcceptAt(door_);
    return client;
  }
  // The sockets of connections that have something, and whether that is a hang-up.
  std::vector<std::pair<uint64_t, bool>> Events() {
    std::vector<std::pair<uint64_t, bool>> events;
    for (const Poller::Event& event : poller_.Wait(0))
      if (event.source == Source::kSocket) events.emplace_back(event.number, event.hung_up);
    return events;
  }

  static std::string MakeFolder() {
    char name[] = "/tmp/xpud-connections-XXXXXX";
    return mkdtemp(name);
  }
  const std::string folder_ = MakeFolder();
  Door door_ = *OpenDoor(folder_ + "/socket", 0600, UniqueFd());
  Poller poller_;
  const Claims claims_;
  Connections connections_{poller_, claims_};
};

TEST_F(ConnectionsTest, AClientIsKnownByWhatTheKernelAndItsDoorSay) {
  const UniqueFd client = Connect();
  ASSERT_FALSE(connections_.empty());
  const Connection* const connection = connections_.Find(1);
  ASSERT_NE(connection, nullptr);
  EXPECT_EQ(connection->peer.pid, getpid());
  EXPECT_EQ(connection->peer.tenant.uid, getuid());
  EXPECT_EQ(connection->gateway_uid, 7u);
  connections_.End(1);
  EXPECT_TRUE(connections_.empty());
  EXPECT_EQ(connections_.Find(1), nullptr);
}

TEST_F(ConnectionsTest, APausedClientIsNotReadButItsHangUpIsNoticed) {
  UniqueFd first = Connect();
  const UniqueFd second = Connect();
  EXPECT_THAT(Events(), IsEmpty());
  send(first.get(), "x", 1, 0);
  send(second.get(), "x", 1, 0);
  ASSERT_TRUE(connections_.Pause(1).ok());
  EXPECT_THAT(Events(), ElementsAre(std::pair(2, false)));
  ASSERT_TRUE(connections_.Pause(2).ok());
  first.Reset();
  EXPECT_THAT(Events(), ElementsAre(std::pair(1, true)));
  connections_.End(1);
  ASSERT_TRUE(connections_.Resume(2).ok());
  EXPECT_THAT(Events(), ElementsAre(std::pair(2, false)));
}

TEST_F(ConnectionsTest, AClientWithoutAPlaceIsToldWhy) {
  connections_.SetMaxPerUser(1);
  const UniqueFd first = Connect(), second = Connect();
  transport::Welcome refusal;
  ASSERT_EQ(recv(second.get(), &refusal, sizeof(refusal), 0), static_cast<ssize_t>(sizeof(refusal)));
  EXPECT_THAT(transport::GetText(refusal.text), HasSubstr("1 are allowed"));
  connections_.End(1);
  const UniqueFd third = Connect();
  EXPECT_NE(connections_.Find(2), nullptr) << "the seat was given back";
}

TEST_F(ConnectionsTest, ThoseThatDidNoHandshakeAreListed) {
  const UniqueFd client = Connect();
  const auto now = std::chrono::steady_clock::now();
  EXPECT_THAT(connections_.WithoutSession(now - std::chrono::seconds(5)), IsEmpty());
  EXPECT_THAT(connections_.WithoutSession(now), ElementsAre(1));
}

}  // namespace
}  // namespace xpud::service
