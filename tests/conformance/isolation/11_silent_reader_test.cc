// A client that requests everything and reads nothing: no completions, no errors, no answers.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <thread>

#include "proto/transport/host_memory.h"
#include "sdk/client/connect.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

using SilentReader = Isolation;

// Errors, results and timestamps for a second, more than the pages can hold.
TEST_F(SilentReader, OfCompletionsAndErrorsCostsNobodyAnything) {
  if (IsRemote())
    GTEST_SKIP() << "the gateway ends a session whose downloads fill more than staging: see remote_test";
  auto session = std::make_unique<HostileSession>(socket());
  PutOperands(*session);
  const View view = TensorView({1, 1}, {1024});
  const std::vector<View> too_many = {view, view, view};
  const auto wrong = Execute(ops::RowOf("neg"), ops::DType::kFloat32, {&view, 1}, too_many);
  const auto start = Clock::now();
  uint64_t seen = 0;
  while (Clock::now() - start < seconds(2)) {
    // It reads only the ring's free space.
    if (session->tail() - session->completion().head.load() > transport::kRingBytes / 2) {
      session->Publish();
      std::this_thread::yield();
      continue;
    }
    for (uint32_t i = 0; i < 200; ++i) {
      session->Put(wrong);
      session->Put(Download({1, 1}, 0, {i * 4096, 0, 0}, 4096));
      session->Put(Timestamp(i));
      session->Put(Copy({999, 1}, 0, {998, 1}, 0, 1 << 30));
    }
    seen = session->sequence();
  }
  EXPECT_FALSE(session->closed());
  EXPECT_GT(seen, 100'000u);
  EXPECT_LE(Vitals::Of(daemon_).resident_bytes, before_.resident_bytes + 8 * kMiB);
  EXPECT_EQ(session->completion().queues[0].errors.load(), 1u) << "the first is kept until it is reported";
  innocent_.ExpectUnharmed();
  session.reset();
  ExpectAsBefore();
}

// If its socket is full of answers, it is disconnected, and its requests are dropped.
TEST_F(SilentReader, OfAnswersIsClosed) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  auto session = std::make_unique<HostileSession>(socket());
  const UniqueFd hollow(memfd_create("hollow", MFD_CLOEXEC));
  const int fd = hollow.get();
  const transport::Request message = {transport::RequestKind::kShareMemory, 1, 1 << 20, 1};
  const auto start = Clock::now();
  while (!session->closed() && Clock::now() - start < seconds(20)) {
    pollfd writable = {session->socket(), POLLOUT, 0};
    if (poll(&writable, 1, 100) == 1 && (writable.revents & POLLOUT) != 0)
      (void)transport::SendMessage(session->socket(), std::as_bytes(std::span(&message, 1)), {&fd, 1});
  }
  EXPECT_TRUE(session->closed());
  session.reset();
  ExpectAsBefore();
}

// Connections that send nothing are dropped, and other clients connect meanwhile.
TEST_F(SilentReader, WhoDoesNotEvenGreetIsDropped) {
  if (IsRemote()) GTEST_SKIP() << "xpud-connect is the client's own";
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(ConnectTo(socket()));
  Innocent newcomer(socket());
  newcomer.ExpectUnharmed();
  EXPECT_TRUE(e2e::Within(seconds(15), [&] {
    return std::all_of(silent.begin(), silent.end(), [](const UniqueFd& socket) {
      char byte;
      return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
    });
  }));
  newcomer.ExpectUnharmed();
}

}  // namespace
}  // namespace xpud::isolation
