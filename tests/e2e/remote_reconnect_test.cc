// Lost connections, and clients that resume their sessions.
#include <atomic>
#include <csignal>
#include <numeric>
#include <thread>

#include "tests/e2e/remote_fixture.h"
#include "tests/e2e/tcp_proxy.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Reconnecting : public Remote {
 protected:
  void OpenProxy(const std::vector<std::string>& arguments = {}) {
    Open(arguments);
    proxy_ = std::make_unique<TcpProxy>(gateway_->address());
  }
  absl::StatusOr<std::unique_ptr<Session>> ConnectFor(int seconds) const {
    ConnectOptions options;
    options.address = proxy_->address();
    options.reconnect = std::chrono::seconds(seconds);
    return Session::Connect(options);
  }
  std::unique_ptr<TcpProxy> proxy_;
};

TEST_F(Reconnecting, WorkGoesOnWhereItWasCut) {
  OpenProxy();
  const auto session = ConnectFor(20);
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<float> values(1 << 20), back(values.size());  // 4 MiB
  std::iota(values.begin(), values.end(), 0.0f);
  auto sum = Tensor::FromHost((*session)->DefaultQueue(0), std::span<const float>(values),
                              {static_cast<int64_t>(values.size())});
  ASSERT_TRUE(sum.ok()) << sum.status();
  std::atomic<bool> done{false};
  int cuts = 0;
  std::thread cutter([&] {
    for (; !done.load(); ++cuts) {
      const uint64_t before = proxy_->forwarded_bytes();
      while (!done.load() && proxy_->forwarded_bytes() < before + (3 << 20))
        std::this_thread::sleep_for(milliseconds(1));
      proxy_->Cut();
    }
  });
  // Each element is incremented once per round, whatever is lost and sent again.
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    const auto ones = Tensor::FromHost((*session)->DefaultQueue(0), std::vector<float>(values.size(), 1.0f),
                                       {static_cast<int64_t>(values.size())});
    ASSERT_TRUE(ones.ok()) << ones.status();
    sum = Add(*sum, *ones);
    ASSERT_TRUE(sum.ok()) << sum.status();
    if (round % 8 == 7) {
      ASSERT_TRUE(sum->ToHost(std::as_writable_bytes(std::span(back))).ok());
    }
  }
  const absl::Status read = sum->ToHost(std::as_writable_bytes(std::span(back)));
  done.store(true);
  cutter.join();
  ASSERT_TRUE(read.ok()) << read;
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(back[i], values[i] + kRounds) << i;
  EXPECT_GT(cuts, 5);
  EXPECT_EQ(daemon_.StatusOf("sessions_opened"), 1);
}

TEST_F(Reconnecting, ANetworkThatComesBackLateIsWaitedFor) {
  OpenProxy();
  const auto session = ConnectFor(30);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 4), 8);
  proxy_->SetDown(true);
  proxy_->Cut();
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(1500));
    proxy_->SetDown(false);
  });
  EXPECT_EQ(Double(**session, 21), 42);
  later.join();
}

TEST_F(Reconnecting, ASessionThatNobodyComesBackToEnds) {
  OpenProxy({"--hold", "1"});
  const auto session = ConnectFor(4);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto buffer = (*session)->DefaultQueue(0).Allocate(1 << 20);
  ASSERT_TRUE((*session)->DefaultQueue(0).Synchronize().ok());
  proxy_->SetDown(true);
  proxy_->Cut();
  EXPECT_TRUE(NothingIsLeft());
  EXPECT_THAT(gateway_->Log(), HasSubstr("session_forgotten"));
  proxy_->SetDown(false);
  EXPECT_THAT(std::string(End(**session, kSoon).message()), HasSubstr("no longer held"));
}

TEST_F(Reconnecting, WhereItCannotComeBackItSaysSo) {
  OpenProxy();
  const auto session = ConnectFor(1);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 4), 8);
  proxy_->SetDown(true);
  proxy_->Cut();
  EXPECT_THAT(std::string(End(**session, kSoon).message()),
              AllOf(HasSubstr("was lost"), HasSubstr("tried to reconnect for 1 s")));
}

TEST_F(Reconnecting, AClientThatGoesLeavesNothing) {
  OpenProxy();
  {
    const auto session = ConnectFor(30);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(Double(**session, 4), 8);
  }
  EXPECT_TRUE(NothingIsLeft());
  EXPECT_EQ(InChild([&] {
              const auto session = ConnectFor(30);
              if (!session.ok() || Double(**session, 4) != 8) return 1;
              raise(SIGKILL);
              return 1;
            }),
            -1);
  EXPECT_TRUE(NothingIsLeft());
}

}  // namespace
}  // namespace xpud::e2e
