#include "daemon/stream/queue_errors.h"

#include <malloc.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "proto/transport/shm_client.h"
#include "proto/transport/shm_server.h"

namespace xpud::stream {
namespace {

class QueueErrorsTest : public ::testing::Test {
 protected:
  QueueErrorsTest() {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    daemon_socket_.Reset(sockets[1]);
    transport::DeviceFds fds;
    server_ = std::move(*transport::ShmServer::Create(fds));
    client_ = std::move(*transport::ShmClient::Create(
        std::make_shared<transport::SessionSocket>(UniqueFd(sockets[0])), std::move(fds),
        transport::kStagingBytes, transport::ShmClient::Waits::kForDaemon));
    errors_ = std::make_unique<QueueErrors>(*server_, counters_);
  }

  // A command of queue 0 fails. The client reports it.
  memory::Fault Fail(const std::string& text) {
    const memory::Fault fault = errors_->Raise(0, ++sequence_, absl::OutOfRangeError(text));
    EXPECT_TRUE(errors_->Clear(0, server_->Errors(0)).ok());
    return fault;
  }
  // What a reader of what the fault poisoned is told, on queue 1.
  absl::Status ToldOf(memory::Fault fault) {
    errors_->RaiseAgain(1, ++sequence_, fault);
    EXPECT_TRUE(errors_->Clear(1, server_->Errors(1)).ok());
    return client_->LastError(1);
  }

  UniqueFd daemon_socket_;
  std::unique_ptr<transport::ShmServer> server_;
  std::unique_ptr<transport::ShmClient> client_;
  SessionCounters counters_;
  std::unique_ptr<QueueErrors> errors_;
  uint64_t sequence_ = 0;
};

TEST_F(QueueErrorsTest, TheTextsOfTheLast256AreKeptAndTheKindOfAll) {
  const memory::Fault first = Fail("the first");
  memory::Fault second = {};
  for (int i = 2; i <= 257; ++i) {
    const memory::Fault fault = Fail("number " + std::to_string(i));
    if (i == 2) second = fault;
  }
  EXPECT_EQ(ToldOf(second), absl::OutOfRangeError("number 2"));
  EXPECT_EQ(ToldOf(first), absl::OutOfRangeError("reads a tensor whose computation failed"));
}

TEST_F(QueueErrorsTest, LongTextsAreCut) {
  constexpr size_t kLong = 1 << 20;
  const auto held = [] {
    const struct mallinfo2 info = mallinfo2();  // all zeros where a sanitizer allocates
    return info.uordblks + info.hblkhd;
  };
  const size_t before = held();
  for (int i = 0; i < 256; ++i) Fail(std::string(kLong, 'x'));
  EXPECT_LT(held(), before + kLong);
}

}  // namespace
}  // namespace xpud::stream
