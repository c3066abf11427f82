// Executors that are killed or stopped at any moment: sessions keep their memory, and their results are
// correct.
#include <random>
#include <thread>

#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class KilledExecutor : public Isolation {
 protected:
  KilledExecutor() : Isolation({"--executor", "process", "--command-limit", "2000"}) {}
  pid_t executor() const { return static_cast<pid_t>(daemon_.StatusOf("executor_pid")); }
  void AwaitReplaced(int64_t count) {
    ASSERT_TRUE(e2e::Within(seconds(20), [&] { return daemon_.StatusOf("executors_replaced") == count; }));
  }
};

TEST_F(KilledExecutor, IsReplacedUnderWorkAndNothingIsLost) {
  const int kills = InFull() ? 200 : 20;
  Innocent second(socket()), large(socket(), 256);
  before_ = Vitals::Of(daemon_);
  std::minstd_rand random(15);
  for (int i = 1; i <= kills; ++i) {
    e2e::SignalProcess(daemon_.AwaitExecutor(), SIGKILL);
    AwaitReplaced(i);
    std::this_thread::sleep_for(milliseconds(random() % 100));
  }
  second.ExpectUnharmed();
  large.ExpectUnharmed();
  std::printf("[ figures  ] %d executors killed; longest round %.0f ms\n", kills, innocent_.TakeLongestMs());
  ExpectAsBefore({.resident = 16 * kMiB});
}

// An executor that hangs counts as lost after --command-limit; the session whose command was first is closed.
TEST_F(KilledExecutor, ThatIsStoppedIsReplacedToo) {
  const pid_t stopped = executor();
  ASSERT_GT(stopped, 0);
  e2e::SignalProcess(stopped, SIGSTOP);
  AwaitReplaced(1);
  Innocent next(socket());
  next.ExpectUnharmed();
}

// The same while it has no command, but a request for device memory or for a client's memory: the caller
// waits, and the next executor serves it.
TEST_F(KilledExecutor, ThatDoesNotAnswerIsReplacedToo) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  const auto session = daemon_.Connect();
  const Queue queue = session->DefaultQueue(0);
  ASSERT_TRUE(queue.Synchronize().ok());
  e2e::SignalProcess(innocent_.pid(), SIGSTOP);
  std::this_thread::sleep_for(milliseconds(100));  // lets work in flight finish
  const auto stop = [&] {
    const pid_t stopped = executor();
    ASSERT_GT(stopped, 0);
    e2e::SignalProcess(stopped, SIGSTOP);
  };
  stop();
  const auto buffer = queue.Allocate(512 * kMiB);  // more than there is: another chunk
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  ASSERT_TRUE(queue.Synchronize().ok());
  AwaitReplaced(1);
  stop();
  const auto host = session->AllocateHost(64 * kMiB);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE(queue.StartUpload(host->bytes(), buffer->handle(), 0).ok());
  ASSERT_TRUE(queue.Synchronize().ok());
  AwaitReplaced(2);
  EXPECT_EQ(daemon_.StatusOf("sessions_closed_for_fault"), 0);
  e2e::SignalProcess(innocent_.pid(), SIGCONT);
  innocent_.ExpectUnharmed();
}

}  // namespace
}  // namespace xpud::isolation
