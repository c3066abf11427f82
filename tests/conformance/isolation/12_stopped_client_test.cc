// A client that is stopped while it holds everything that it can get.
#include <sys/wait.h>

#include <thread>

#include "proto/transport/host_memory.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;

using StoppedClient = Isolation;

constexpr uint64_t kPiece = 64 << 20;

void ShareAll(HostileSession& session) {
  for (uint32_t id = 1; id <= transport::kMaxHostMemories; ++id) {
    const UniqueFd memory = *transport::CreateHostMemory(transport::kHostMemoryUnit);
    const transport::Request message = {transport::RequestKind::kShareMemory, id, transport::kHostMemoryUnit,
                                        1};
    const int fd = memory.get();
    (void)transport::SendMessage(session.socket(), std::as_bytes(std::span(&message, 1)), {&fd, 1});
    transport::Answer answer;
    (void)transport::ReceiveMessage(session.socket(), std::as_writable_bytes(std::span(&answer, 1)));
  }
}

// Holds device memory up to the limit, all queues, all host memories, many buffers, an error, and a full ring
// whose commands wait for each other.
void HoldEverything(const std::string& socket) {
  auto* const session = new HostileSession(socket, "stopped");
  ShareAll(*session);
  for (uint32_t queue = 1; queue < wire::kMaxQueues; ++queue) session->Put(CreateQueue(queue));
  uint32_t id = 0;
  for (uint64_t held = 0; held + kPiece <= session->welcome().devices[0].total_memory; held += kPiece)
    session->Put(Allocate({++id, 1}, kPiece));
  for (int i = 0; i < 100'000; ++i) session->Put(Allocate({++id, 1}, 0));
  session->Put(Allocate({++id, 1}, uint64_t{1} << 60));
  session->Publish();
  while (session->tail() - session->completion().head.load() + 64 < transport::kRingBytes) {
    session->Put(Copy({1, 1}, 0, {2, 1}, 0, kPiece));
    session->Put(Wait(0, session->sequence(), 1));
    if (session->sequence() % 1000 == 0) session->Publish();
  }
  session->Publish();
}

TEST_F(StoppedClient, WhoHoldsEverythingHoldsUpNobody) {
  Child hostile([&] {
    HoldEverything(socket());
    raise(SIGSTOP);
  });
  int status;
  ASSERT_EQ(waitpid(hostile.pid(), &status, WUNTRACED), hostile.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  innocent_.ExpectUnharmed();
  {
    Innocent newcomer(socket());
    newcomer.ExpectUnharmed();
  }
  std::printf("[ figures  ] the stopped client holds %.1f GiB of the device\n",
              static_cast<double>(daemon_.StatusOf("memory_used_bytes")) / (1 << 30));
  EXPECT_GT(daemon_.StatusOf("memory_used_bytes"), int64_t{1} << 30);
  // Stops it repeatedly in the middle of its work.
  for (int i = 0; i < 20; ++i) {
    hostile.Signal(SIGCONT);
    std::this_thread::sleep_for(milliseconds(3));
    hostile.Signal(SIGSTOP);
    innocent_.ExpectUnharmed();
  }
  hostile.Kill();
  ExpectAsBefore({.resident = 32 * kMiB, .mappings = 128});
}

class ManyQueues : public Isolation {
 protected:
  ManyQueues() : Isolation({"--executor", "process"}) {}
};

// A device has more queues than some sessions can take.
TEST_F(ManyQueues, OfManySessionsLeaveSomeForOthers) {
  constexpr int kSessions = 100;
  std::vector<std::unique_ptr<HostileSession>> sessions;
  for (int i = 0; i < kSessions; ++i) {
    sessions.push_back(std::make_unique<HostileSession>(socket()));
    for (uint32_t queue = 1; queue < wire::kMaxQueues; ++queue) sessions.back()->Put(CreateQueue(queue));
    sessions.back()->Put(Nop());
    ASSERT_TRUE(sessions.back()->Settle().ok()) << "session " << i;
  }
  Innocent(socket()).ExpectUnharmed();
  sessions.clear();
  ExpectAsBefore({.resident = 64 * kMiB, .mappings = 128});
}

}  // namespace
}  // namespace xpud::isolation
