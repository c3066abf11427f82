// Tests in which a client or the daemon breaks: the others continue, and all resources are released.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sdk/client/connect.h"
#include "sdk/client/core.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_session.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

Tensor Ones(const Queue& queue, int64_t n) {
  const std::vector<float> values(static_cast<size_t>(n), 1);
  return *Tensor::FromHost(queue, std::span<const float>(values), {n});
}

// Runs `body` in a forked child that then waits to be killed; returns once the child says it is ready.
int StartChild(const std::function<void()>& body) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const int child = fork();
  if (child == 0) {
    body();
    (void)!write(ready[1], "1", 1);
    while (true) pause();
  }
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

int64_t UsedBytes(const DaemonProcess& daemon) { return daemon.StatusOf("memory_used_bytes"); }

TEST(Faults, AKilledClientGivesItsMemoryBackAndOthersSeeNothing) {
  DaemonProcess daemon;
  auto bystander = daemon.Connect();
  const Queue queue = bystander->DefaultQueue(0);
  const Tensor ones = Ones(queue, 16);
  ASSERT_TRUE(queue.Synchronize().ok());
  const int64_t before = UsedBytes(daemon);
  const int child = StartChild([&] {
    auto session = daemon.Connect("victim");
    Tensor x = Ones(session->DefaultQueue(0), 16 << 20);
    for (int i = 0; i < 50; ++i) x = *Mul(x, 1.0);  // still computing when it is killed
    new auto(std::move(session));
    new Tensor(x);
  });
  SignalProcess(child, SIGKILL);
  const auto killed = Clock::now();
  for (int i = 0; i < 100; ++i) ASSERT_THAT((*Mul(ones, 2.0)->ToFloats())[0], 2);
  EXPECT_TRUE(Within(milliseconds(1000), [&] { return UsedBytes(daemon) <= before + 4096; }))
      << UsedBytes(daemon) << " against " << before;
  RecordProperty("ms",
                 static_cast<int>(std::chrono::duration_cast<milliseconds>(Clock::now() - killed).count()));
  waitpid(child, nullptr, 0);
}

TEST(Faults, AKilledDaemonEndsEveryCallWithinASecondAndTheNextOneStarts) {
  auto daemon = std::make_unique<DaemonProcess>();
  auto session = daemon->Connect();
  const Queue queue = session->DefaultQueue(0);
  const Tensor ones = Ones(queue, 16);
  ASSERT_TRUE(queue.Synchronize().ok());
  daemon->Kill();
  const auto start = Clock::now();
  absl::Status status;
  for (int i = 0; status.ok() && i < 1'000'000; ++i) status = Mul(ones, 2.0)->ToFloats().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr("the xpud daemon died"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(session->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(session->HasLostDaemon());
  EXPECT_TRUE(session->HasEnded());
  DaemonProcess next;
  ConnectOptions options;
  options.address = next.socket();
  const auto other = Session::ConnectInPlaceOf(*session, options);
  ASSERT_TRUE(other.ok()) << other.status();
  const Queue theirs = (*other)->DefaultQueue(0);
  const Tensor twos = *Mul(Ones(theirs, 16), 2.0);
  EXPECT_THAT((*twos.ToFloats())[0], 2);
  const absl::Status copied = theirs.Copy(ones.ref().buffer, 0, twos.ref().buffer, 0, 64);
  EXPECT_THAT(copied.message(), HasSubstr("is lost"));
  EXPECT_TRUE(theirs.Synchronize().ok());
}

TEST(Faults, BreachesOfProtocolCloseThatSessionOnly) {
  using wire::CommandKind;
  DaemonProcess daemon;
  auto bystander = daemon.Connect();
  const Tensor ones = Ones(bystander->DefaultQueue(0), 4);
  const std::vector<std::pair<std::function<void(RawSession&)>, const char*>> breaches = {
      {[](RawSession& h) {
         h.Send(wire::FreeCommand{HeaderOf<wire::FreeCommand>(CommandKind::kFree), {1, 1}});
       },
       "does not exist"},
      {[](RawSession& h) {
         h.Send(wire::AllocateCommand{
             HeaderOf<wire::AllocateCommand>(CommandKind::kAllocate), {4'000'000, 1}, 8});
       },
       "out of order"},
      {[](RawSession& h) {
         h.Send(wire::AllocateCommand{HeaderOf<wire::AllocateCommand>(CommandKind::kAllocate, 9), {1, 1}, 8});
       },
       "queue does not exist"},
      {[](RawSession& h) { h.Send(wire::NopCommand{{4, CommandKind::kNop, 0, 0}}); }, "a command of 4 bytes"},
      {[](RawSession& h) { h.Send(wire::NopCommand{{8, static_cast<CommandKind>(200), 0, 0}}); },
       "unknown kind 200"},
      {[](RawSession& h) {
         h.Send(wire::DownloadCommand{
             HeaderOf<wire::DownloadCommand>(CommandKind::kDownload), {1, 1}, 0, {0xfffffff0u, 0, 0}, 64});
       },
       "leaves the staging memory"},
      {[](RawSession& h) {
         h.Send(wire::WaitCommand{HeaderOf<wire::WaitCommand>(CommandKind::kWait), 0, 0, 99});
       },
       "not an earlier one"},
      {[](RawSession& h) {
         h.Send(wire::WaitCommand{HeaderOf<wire::WaitCommand>(CommandKind::kWait), 77, 0, 0});
       },
       "device that the session has not opened"},
      {[](RawSession& h) {
         h.Send(wire::TimestampCommand{HeaderOf<wire::TimestampCommand>(CommandKind::kTimestamp), 5000, 0});
       },
       "slot is out of range"},
      {[](RawSession& h) {
         h.Send(wire::ClearErrorCommand{HeaderOf<wire::ClearErrorCommand>(CommandKind::kClearError), 3, 0});
       },
       "never raised"},
      {[](RawSession& h) {
         h.Send(
             wire::ExecuteCommand{HeaderOf<wire::ExecuteCommand>(CommandKind::kExecute), 65535, 0, 0, 0, 0});
       },
       "op 65535 does not exist"},
      {[](RawSession& h) {
         h.Send(wire::ExecuteCommand{HeaderOf<wire::ExecuteCommand>(CommandKind::kExecute), 10, 8, 0, 1, 0});
       },
       "ends inside an operand"},
  };
  for (const auto& [breach, reason] : breaches) {
    RawSession hostile(daemon.socket());
    breach(hostile);
    EXPECT_THAT(hostile.Fate(), HasSubstr(reason));
    EXPECT_THAT(*Add(ones, ones)->ToFloats(), ElementsAre(2, 2, 2, 2));
  }
}

// The device is asynchronous, so the daemon waits for it at the session's end.
TEST(Faults, AClosedSessionIsNotToldThatCommandsAreDoneThatWereNotRun) {
  const DaemonProcess daemon({"--device", "cpu", "--executor", "thread", "--asynchronous"});
  RawSession raw(daemon.socket());
  raw.Send(wire::NopCommand{HeaderOf<wire::NopCommand>(wire::CommandKind::kNop)});
  raw.Send(wire::FreeCommand{HeaderOf<wire::FreeCommand>(wire::CommandKind::kFree), {1, 1}});
  EXPECT_THAT(raw.Fate(), HasSubstr("does not exist"));
  EXPECT_FALSE(Within(milliseconds(100), [&] { return raw.transport().Completed(0) > 1; }));
}

// Its errors may have been emptied.
TEST(Faults, AnEventOfASessionThatEndedIsNotReportedAsFreeOfErrors) {
  DaemonProcess daemon;
  const auto session = daemon.Connect();
  const Queue queue = *session->CreateQueue(0);
  const Event event = *queue.Record(false);  // before any command, so it is complete
  EXPECT_TRUE(event.Synchronize().ok());
  SignalProcess(daemon.pid(), SIGTERM);
  ASSERT_TRUE(Within(milliseconds(20'000), [&] { return !session->status().ok(); }));
  EXPECT_TRUE(absl::IsUnavailable(event.Synchronize())) << event.Synchronize();
}

TEST(Faults, AnOpWithTooManyInputsIsRefusedAndItsOutputsAreUnusable) {
  DaemonProcess daemon;
  const auto session = daemon.Connect();
  const Queue queue = session->DefaultQueue(0);
  const Tensor a = Ones(queue, 2), fresh = *Tensor::Empty(queue, ops::DType::kFloat32, {2});
  const TensorRef output = fresh.ref(), inputs[] = {a.ref(), a.ref()};
  ASSERT_TRUE(queue.Execute({&ops::RowOf("neg"), ops::DType::kFloat32, {&output, 1}, inputs, {}}).ok());
  EXPECT_THAT(queue.Synchronize().message(), HasSubstr("2 inputs; at most 1 are allowed"));
  EXPECT_THAT(fresh.ToFloats().status().message(), HasSubstr("2 inputs; at most 1 are allowed"));
}

// UBSan would report arithmetic on its null address (stage `asan`).
TEST(Faults, AViewIntoABufferWithoutMemoryIsAnErrorOfItsQueue) {
  DaemonProcess daemon;
  RawSession raw(daemon.socket());
  raw.Send(wire::AllocateCommand{
      HeaderOf<wire::AllocateCommand>(wire::CommandKind::kAllocate), {1, 1}, 1ull << 60});
  const int64_t size = 2;
  TensorRef view;
  view.kind = TensorRef::Kind::kTensor;
  view.rank = 1;
  view.buffer = {1, 1};
  view.offset = 4096;
  view.sizes = &size;
  const OpCall call = {&ops::RowOf("neg"), ops::DType::kFloat32, {&view, 1}, {&view, 1}, {}};
  std::byte* const space = raw.transport().Reserve(*wire::ExecuteBytes(call));
  wire::EncodeExecute(call, 0, space);
  raw.transport().Commit(*wire::ExecuteBytes(call));
  raw.Send(wire::NopCommand{HeaderOf<wire::NopCommand>(wire::CommandKind::kNop)});
  EXPECT_TRUE(raw.transport().Wait([&] { return raw.transport().Completed(0) >= 3; }, {}).ok());
  EXPECT_EQ(raw.transport().LastError(0).code(), absl::StatusCode::kResourceExhausted);
}

TEST(Faults, AStaleHandleIsRefusedAndTheSessionGoesOn) {
  DaemonProcess daemon;
  auto session = daemon.Connect();
  const Queue queue = session->DefaultQueue(0);
  TensorRef stale;
  {
    const Tensor gone = Ones(queue, 4);
    stale = gone.ref();
  }
  const Tensor ones = Ones(queue, 4);  // reuses the id
  const int64_t sizes[] = {4};
  stale.sizes = sizes;
  stale.strides = nullptr;
  const TensorRef out = ones.ref();
  ASSERT_TRUE(queue.Execute({&ops::RowOf("neg"), ops::DType::kFloat32, {&out, 1}, {&stale, 1}, {}}).ok());
  EXPECT_THAT(queue.Synchronize().message(), HasSubstr("buffer that does not exist"));
  EXPECT_THAT(*Add(ones, ones)->ToFloats(), ElementsAre(2, 2, 2, 2));
}

TEST(Faults, AClientThatSendsAfterItsGreetingOrNothingOrNonsenseIsDropped) {
  DaemonProcess daemon;
  const auto hung_up = [](const UniqueFd& socket) {
    char byte;
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  auto nonsense = *client::ConnectSocket(daemon.socket());
  ASSERT_TRUE(transport::SendMessage(nonsense.get(), std::as_bytes(std::span("hello"))).ok());
  EXPECT_TRUE(Within(milliseconds(1000), [&] { return hung_up(nonsense); }));
  auto future = *client::ConnectSocket(daemon.socket());
  const transport::Hello hello = {transport::kHelloMagic, 900, 901, "from the future"};
  ASSERT_TRUE(transport::SendMessage(future.get(), std::as_bytes(std::span(&hello, 1))).ok());
  transport::Welcome welcome;
  ASSERT_TRUE(transport::ReceiveMessage(future.get(), std::as_writable_bytes(std::span(&welcome, 1))).ok());
  EXPECT_EQ(welcome.version, 0);
  EXPECT_THAT(transport::GetText(welcome.text), HasSubstr("protocol versions 900 to 901"));
}

TEST(Faults, ManyKilledClientsLeaveNothingBehind) {
  DaemonProcess daemon;
  {
    daemon.Connect()->DefaultQueue(0).Synchronize().IgnoreError();
  }
  ASSERT_TRUE(Within(milliseconds(1000), [&] { return UsedBytes(daemon) == 0; }));
  const size_t files = daemon.OpenFileCount();
  for (int i = 0; i < 30; ++i) {
    const int child = StartChild([&] {
      auto session = daemon.Connect("victim");
      new Tensor(*Mul(Ones(session->DefaultQueue(0), 4096), 2.0));
      new auto(std::move(session));
    });
    SignalProcess(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  EXPECT_TRUE(Within(milliseconds(1000), [&] { return UsedBytes(daemon) == 0; })) << UsedBytes(daemon);
  EXPECT_TRUE(Within(milliseconds(1000), [&] { return daemon.OpenFileCount() <= files + 1; }))
      << daemon.OpenFileCount() << " against " << files;
}

TEST(Faults, ASecondDaemonOnTheSameSocketIsRefused) {
  DaemonProcess daemon;
  const std::string command = DaemonBinary() + " --socket " + daemon.socket() + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  char text[1024] = {};
  (void)!fread(text, 1, sizeof(text) - 1, pipe);
  EXPECT_NE(pclose(pipe), 0);
  EXPECT_THAT(text, HasSubstr("another xpud daemon serves"));
  EXPECT_TRUE(daemon.Connect()->DefaultQueue(0).Synchronize().ok());
}

TEST(Faults, AForkedChildIsToldToMakeItsOwnSession) {
  DaemonProcess daemon;
  auto session = daemon.Connect();
  const Tensor ones = Ones(session->DefaultQueue(0), 4);
  const int child = fork();
  if (child == 0) {
    const absl::Status status = Add(ones, ones).status();
    auto own = daemon.Connect("child");
    const bool works = (*Mul(Ones(own->DefaultQueue(0), 1), 3.0)->ToFloats())[0] == 3;
    _exit(status.code() == absl::StatusCode::kFailedPrecondition && works ? 0 : 1);
  }
  int result;
  waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  EXPECT_THAT(*Add(ones, ones)->ToFloats(), ElementsAre(2, 2, 2, 2)) << "the parent's session goes on";
}

TEST(Faults, ProcessesThatStartTogetherGetOnePrivateDaemonWhichEndsAfterThem) {
  char pattern[] = "/tmp/xpud-private-XXXXXX";
  const std::string directory = mkdtemp(pattern);
  setenv("XDG_RUNTIME_DIR", directory.c_str(), 1);
  setenv("XPUD_DAEMON", DaemonBinary().c_str(), 1);
  setenv("XDG_CACHE_HOME", directory.c_str(), 1);
  unsetenv("XPUD_ADDRESS");
  std::vector<int> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(fork());
    if (children.back() == 0) {
      auto session = Session::Connect({});
      if (!session.ok()) {
        std::fprintf(stderr, "%s\n", std::string(session.status().message()).c_str());
        _exit(2);
      }
      const bool right = (*Mul(Ones((*session)->DefaultQueue(0), 1), 3.0)->ToFloats())[0] == 3;
      _exit(right ? ((*session)->started_daemon() ? 10 : 0) : 1);
    }
  }
  int started = 0;
  for (const int child : children) {
    int status;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 10))
        << WEXITSTATUS(status);
    started += WEXITSTATUS(status) == 10;
  }
  EXPECT_EQ(started, 1);
  // The daemon ends 60 s after its last client; the tests do not wait for that.
  int pid = 0;
  std::ifstream(directory + "/xpud/xpud.sock.lock") >> pid;
  ASSERT_GT(pid, 0);
  SignalProcess(pid, SIGTERM);
  EXPECT_TRUE(Within(seconds(30), [&] { return kill(pid, 0) != 0; }));  // generous; the time is not specified
  std::filesystem::remove_all(directory);
}

TEST(Faults, AnIdleDaemonEndsByItself) {
  DaemonProcess daemon({"--exit-when-idle", "1"});
  {
    auto session = daemon.Connect();
  }
  int status = -1;
  const int pid = daemon.pid();
  EXPECT_TRUE(Within(milliseconds(5000), [&] { return waitpid(pid, &status, WNOHANG) == pid; }));
  EXPECT_EQ(status, 0) << daemon.Log();
}

}  // namespace
}  // namespace xpud::e2e
