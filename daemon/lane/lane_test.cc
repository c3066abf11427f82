#include "daemon/lane/lane.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/lane/lanes.h"
#include "daemon/lane/testing/memory_device.h"
#include "daemon/scheduler/tenant_shares.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/transport/shm_client.h"
#include "proto/transport/shm_server.h"
#include "proto/wire/encode.h"

namespace xpud::lane {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

stream::DeviceState MakeDevice(uint32_t index, uint64_t memory = uint64_t{256} << 20,
                               bool asynchronous = false) {
  stream::DeviceState state;
  state.Use(std::make_unique<MemoryDevice>(asynchronous, memory), index);
  state.library = *kernels::KernelLibrary::Create({});
  return state;
}

// A daemon without its listener.
struct Daemon {
  explicit Daemon(int devices, Lanes::Options options = {}, bool asynchronous = false) {
    std::vector<stream::DeviceState> states;
    for (int d = 0; d < devices; ++d)
      states.push_back(MakeDevice(static_cast<uint32_t>(d), 256 * kMiB, asynchronous));
    options.policy = scheduler::TenantShares::Create;
    lanes = *Lanes::Create(std::move(states), registry, std::move(options));
  }
  std::shared_ptr<session::Session> Connect() {
    return *registry.Add({}, {0, 1, 2, 3}, std::make_shared<handles::HostMemories>(0, false));
  }
  session::Registry registry;
  std::unique_ptr<Lanes> lanes;
};

// A client's end of a session on one device.
class Client {
 public:
  Client(Daemon& daemon, const std::shared_ptr<session::Session>& session, uint32_t device = 0) {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    daemon_end_.Reset(sockets[1]);
    transport::DeviceFds fds;
    std::shared_ptr<transport::ServerTransport> server = *transport::ShmServer::Create(fds);
    doorbell.Reset(dup(fds.doorbell.get()));
    transport = *transport::ShmClient::Create(
        std::make_shared<transport::SessionSocket>(UniqueFd(sockets[0])), std::move(fds),
        transport::kStagingBytes, transport::ShmClient::Waits::kForDaemon);
    Lane& lane = (*daemon.lanes)[device];
    absl::Status opened;
    lane.Call([&] { opened = lane.Open(session, server); });
    EXPECT_TRUE(opened.ok()) << opened;
  }
  template <typename Command>
  uint64_t Send(const Command& command) {
    std::byte* space;
    while ((space = transport->Reserve(sizeof(command))) == nullptr) std::this_thread::yield();
    std::memcpy(space, &command, sizeof(command));
    transport->Commit(sizeof(command));
    transport->Publish();
    return ++sequence_;
  }
  uint64_t SendNop() {
    return Send(wire::NopCommand{wire::Header(wire::CommandKind::kNop, 0, sizeof(wire::NopCommand))});
  }
  // A command that closes the session.
  void SendBreach() {
    Send(wire::NopCommand{wire::Header(wire::CommandKind::kNop, 9, sizeof(wire::NopCommand))});
  }
  uint64_t SendWait(uint32_t device, uint64_t sequence) {
    return Send(wire::WaitCommand{wire::Header(wire::CommandKind::kWait, 0, sizeof(wire::WaitCommand)),
                                  device, 0, sequence});
  }
  bool Completes(uint64_t sequence) const { return transport->Await({0, sequence}, {}).ok(); }
  // The reason why the session was closed; empty if it was not, for 2 s.
  std::string Fate() const {
    for (int i = 0; i < 2000 && transport->status().ok(); ++i) std::this_thread::sleep_for(milliseconds(1));
    return std::string(transport->status().message());
  }

  UniqueFd doorbell;
  std::unique_ptr<transport::ShmClient> transport;

 private:
  UniqueFd daemon_end_;
  uint64_t sequence_ = 0;
};

TEST(Lane, TasksOfManyThreadsAllRunOnOneThread) {
  Daemon daemon(1);
  Lane& lane = (*daemon.lanes)[0];
  int count = 0;  // no lock: only the lane's thread uses it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        if (i % 2 == 0) {
          lane.Call([&] { ++count; });
        } else {
          lane.Post([&] { ++count; });
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int seen = 0;
  lane.Call([&] { seen = count; });
  EXPECT_EQ(seen, 2000);
}

// ---- copies between devices

class Copies : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 1024;
  static constexpr wire::Handle kBuffer = {1, 1};

  explicit Copies(bool asynchronous = false) : daemon_(2, {}, asynchronous) {
    for (Client* const each : {&here_, &there_}) {
      each->Send(wire::AllocateCommand{
          wire::Header(wire::CommandKind::kAllocate, 0, sizeof(wire::AllocateCommand)), kBuffer, kBytes});
    }
  }
  static uint64_t Fill(Client& client, char value) {
    struct {
      wire::UploadInlineCommand upload;
      std::array<char, kBytes> bytes;
    } command = {{wire::Header(wire::CommandKind::kUploadInline, 0, sizeof(command)), kBuffer, 0,
                  static_cast<uint32_t>(kBytes), 0},
                 {}};
    command.bytes.fill(value);
    return client.Send(command);
  }
  static uint64_t Lend(Client& client, uint64_t loan) {
    return client.Send(wire::LendCommand{wire::Header(wire::CommandKind::kLend, 0, sizeof(wire::LendCommand)),
                                         kBuffer, 0, kBytes, loan});
  }
  static uint64_t CopyFrom(Client& client, uint32_t source, uint64_t loan, wire::Handle target = kBuffer) {
    return client.Send(
        wire::CopyFromCommand{wire::Header(wire::CommandKind::kCopyFrom, 0, sizeof(wire::CopyFromCommand)),
                              target, 0, kBytes, loan, source, 0});
  }
  static std::string Read(Client& client) {
    const uint64_t read = client.Send(
        wire::DownloadCommand{wire::Header(wire::CommandKind::kDownload, 0, sizeof(wire::DownloadCommand)),
                              kBuffer,
                              0,
                              {0, 0, 0},
                              kBytes});
    EXPECT_TRUE(client.Completes(read));
    return {reinterpret_cast<const char*>(client.transport->staging().data()), kBytes};
  }

  uint64_t UsedBytes(uint32_t device) const {
    uint64_t used = 0;
    Lane& lane = (*daemon_.lanes)[device];
    lane.Call([&] { used = lane.state().pool->used_bytes(); });
    return used;
  }
  bool BecomesFree(uint32_t device) const {
    for (int i = 0; i < 2000 && UsedBytes(device) != 0; ++i) std::this_thread::sleep_for(milliseconds(1));
    return UsedBytes(device) == 0;
  }

  Daemon daemon_;
  const std::shared_ptr<session::Session> session_ = daemon_.Connect();
  Client here_{daemon_, session_, 0}, there_{daemon_, session_, 1};
};

TEST_F(Copies, AreOfWhatTheSourceHadThen) {
  uint64_t overwritten = 0;
  for (uint64_t round = 1; round <= 500; ++round) {
    Fill(here_, static_cast<char>('a' + round % 20));
    Lend(here_, round);
    CopyFrom(there_, 0, round);
    overwritten = Fill(here_, '-');
    if (round % 10 == 0) ASSERT_EQ(Read(there_), std::string(kBytes, static_cast<char>('a' + round % 20)));
  }
  EXPECT_TRUE(here_.Completes(overwritten));
  EXPECT_EQ(session_->loans().open(), 0u);
}

TEST_F(Copies, GoBothWaysAtOnce) {
  Fill(here_, 'a');
  Fill(there_, 'a');
  for (uint64_t round = 1; round <= 500; ++round) {
    Lend(here_, round);
    CopyFrom(there_, 0, round);
    Lend(there_, round);
    CopyFrom(here_, 1, round);
  }
  EXPECT_EQ(Read(here_) + Read(there_), std::string(2 * kBytes, 'a'));
}

TEST_F(Copies, WaitForTheirLoanAndHoldUpTheirOwnRing) {
  const uint64_t copied = CopyFrom(there_, 0, 1);
  Fill(here_, 'x');
  EXPECT_TRUE(here_.Completes(here_.SendNop()));
  EXPECT_LT(there_.transport->Completed(0), copied);
  Lend(here_, 1);
  EXPECT_TRUE(there_.Completes(copied));
  EXPECT_EQ(Read(there_), std::string(kBytes, 'x'));
}

// With loans that nobody copies, a copy that waits, and a write that waits for it.
TEST_F(Copies, EndWithTheirSession) {
  Fill(here_, 'x');
  EXPECT_TRUE(here_.Completes(Lend(here_, 1)));
  Fill(here_, 'y');
  Lend(there_, 1);
  CopyFrom(there_, 0, 2);
  daemon_.lanes->Close(*session_, "the test");
  EXPECT_THAT(here_.Fate() + there_.Fate(), HasSubstr("the test"));
  for (const uint32_t device : {0, 1}) EXPECT_TRUE(BecomesFree(device));
  EXPECT_EQ(session_->loans().open(), 0u);
}

// On devices that report what they have done only when the test says so.
class LostCopies : public Copies {
 protected:
  LostCopies() : Copies(/*asynchronous=*/true) {}

  void On(uint32_t device, absl::FunctionRef<void(MemoryDevice&)> task) const {
    Lane& lane = (*daemon_.lanes)[device];
    lane.Call([&] { task(static_cast<MemoryDevice&>(*lane.state().device)); });
  }
  void Lose(uint32_t device) const {
    On(device, [&](MemoryDevice& each) { each.Lose(session_->id(), "the work is lost"); });
  }
  void Announce(uint32_t device) const {
    On(device, [](MemoryDevice& each) { each.Announce(); });
  }
  // Each device lends its buffer, and the other one is at its copy.
  void LendAndCopy() {
    for (Client* const each : {&here_, &there_}) {
      Fill(*each, 'x');
      Lend(*each, 1);
      each->Send(wire::AllocateCommand{
          wire::Header(wire::CommandKind::kAllocate, 0, sizeof(wire::AllocateCommand)), kCopy, kBytes});
    }
    for (const uint32_t source : {0, 1}) {
      ASSERT_TRUE(Becomes(source, handles::Loan::State::kReady, [&] { Announce(source); }));
    }
    CopyFrom(there_, 0, 1, kCopy);
    CopyFrom(here_, 1, 1, kCopy);
    for (const uint32_t source : {0, 1}) ASSERT_TRUE(Becomes(source, handles::Loan::State::kBorrowed, [] {}));
  }
  static constexpr wire::Handle kCopy = {2, 1};

 private:
  // Of the source's loan.
  bool Becomes(uint32_t source, handles::Loan::State state, absl::FunctionRef<void()> meanwhile) const {
    for (int i = 0; i < 1000; ++i) {
      const auto loan = session_->loans().Find(source, 1);
      if (loan.ok() && *loan != nullptr && (*loan)->state() == state) return true;
      meanwhile();
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
};

TEST_F(LostCopies, KeepTheirSourceUntilTheOtherDeviceHasReadIt) {
  LendAndCopy();
  Lose(0);
  EXPECT_THAT(here_.Fate() + there_.Fate(), HasSubstr("the work is lost"));
  for (int i = 0; i < 200; ++i) {
    ASSERT_NE(UsedBytes(0), 0u);
    std::this_thread::sleep_for(milliseconds(1) / 10);
  }
  for (int i = 0; i < 1000 && session_->loans().open() != 0; ++i) Announce(1);
  for (const uint32_t device : {0, 1}) EXPECT_TRUE(BecomesFree(device));
}

// One executor has lost it, and another one of the device may go on.
TEST_F(LostCopies, ASessionEndsWithItsLastQueueThatIsNotLost) {
  const uint64_t created = here_.Send(wire::CreateQueueCommand{
      wire::Header(wire::CommandKind::kCreateQueue, 1, sizeof(wire::CreateQueueCommand)), 0, 0});
  Fill(here_, 'x');
  struct {
    wire::UploadInlineCommand upload;
    std::array<char, kBytes> bytes;
  } command = {{wire::Header(wire::CommandKind::kUploadInline, 1, sizeof(command)), kBuffer, 0,
                static_cast<uint32_t>(kBytes), 0},
               {}};
  const uint64_t last = here_.Send(command);
  EXPECT_GT(last, created);
  bool has_run = false;
  for (int i = 0; i < 1000 && !has_run; ++i) {
    (*daemon_.lanes)[0].Call([&] { has_run = (*daemon_.lanes)[0].state().last_content >= 2; });
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_TRUE(has_run);
  On(0, [&](MemoryDevice& device) { device.Lose(session_->id(), "the work is lost", /*spared=*/1); });
  EXPECT_THAT(here_.Fate(), HasSubstr("the work is lost"));
  for (int i = 0; i < 200; ++i) {
    ASSERT_NE(UsedBytes(0), 0u);
    std::this_thread::sleep_for(milliseconds(1) / 10);
  }
  for (const uint32_t device : {0, 1}) Announce(device);
  for (const uint32_t device : {0, 1}) EXPECT_TRUE(BecomesFree(device));
}

// It may still work on what it has until its queue has ended.
TEST_F(LostCopies, AreReturnedByADeviceThatTakesNoWorkOnceItsQueueHasEnded) {
  LendAndCopy();
  std::optional<handles::Loan::State> at_the_end;
  On(1, [&](MemoryDevice& device) {
    device.FailMarks(absl::InternalError("broken"));
    device.on_queue_end = [&] {
      const auto loan = session_->loans().Find(0, 1);
      if (loan.ok() && *loan != nullptr) at_the_end = (*loan)->state();
    };
  });
  daemon_.lanes->Close(*session_, "the test");
  for (int i = 0; i < 1000 && session_->loans().open() != 0; ++i) Announce(0);
  for (const uint32_t device : {0, 1}) EXPECT_TRUE(BecomesFree(device));
  On(1, [](MemoryDevice& device) { device.on_queue_end = [] {}; });
  EXPECT_EQ(at_the_end, handles::Loan::State::kBorrowed);
}

TEST_F(LostCopies, WaitForNoDeviceThatIsLostToo) {
  LendAndCopy();
  for (const uint32_t device : {0, 1}) Lose(device);
  for (const uint32_t device : {0, 1}) EXPECT_TRUE(BecomesFree(device));
  EXPECT_EQ(session_->loans().open(), 0u);
}

TEST(Lane, ASleepingLaneWakesForACommandAndClosesOnlyTheSessionThatBreaches) {
  std::atomic<uint64_t> closed{0};
  Daemon daemon(1, {.on_close = [&](uint64_t id) { closed.store(id); }});
  const auto good_session = daemon.Connect(), bad_session = daemon.Connect();
  Client good(daemon, good_session), bad(daemon, bad_session);
  std::this_thread::sleep_for(milliseconds(20));  // asleep by now
  bad.SendBreach();
  EXPECT_THAT(bad.Fate(), HasSubstr("a queue does not exist"));
  EXPECT_TRUE(good.Completes(good.SendNop()));
  EXPECT_EQ(daemon.registry.List().size(), 1u);
  EXPECT_EQ(daemon.registry.counters().closed_for_fault, 1u);
  EXPECT_EQ(closed.load(), bad_session->id());
}

TEST(Lane, ItsEndClosesEverySession) {
  Daemon daemon(1);
  Client client(daemon, daemon.Connect());
  daemon.lanes.reset();
  EXPECT_THAT(client.Fate(), HasSubstr("ending"));
}

TEST(Lane, OpensADeviceOnceForASessionThatIsOpen) {
  Daemon daemon(1);
  const auto session = daemon.Connect();
  Client client(daemon, session);
  Lane& lane = (*daemon.lanes)[0];
  const auto open = [&](const std::shared_ptr<session::Session>& of) {
    transport::DeviceFds fds;
    std::shared_ptr<transport::ServerTransport> server = *transport::ShmServer::Create(fds);
    absl::Status opened;
    lane.Call([&] { opened = lane.Open(of, server); });
    return opened.code();
  };
  EXPECT_EQ(open(session), absl::StatusCode::kAlreadyExists);
  const auto closed = daemon.Connect();
  daemon.lanes->Close(*closed, "its process ended");
  EXPECT_EQ(open(closed), absl::StatusCode::kUnavailable);
}

uint64_t CpuMicroseconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 +
         static_cast<uint64_t>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Returns the share of a core that this process uses in the next 300 ms.
double CpuShare() {
  std::this_thread::sleep_for(milliseconds(20));
  const uint64_t before = CpuMicroseconds();
  std::this_thread::sleep_for(milliseconds(300));
  return static_cast<double>(CpuMicroseconds() - before) / 300'000;
}

TEST(Lane, APausedTenantsCommandsWaitWithoutASpinningLane) {
  std::atomic<bool> paused = true;
  Lanes::Options options;
  options.grant_of = [&](const Tenant&) { return TimeGrant{.paused = paused}; };
  Daemon daemon(1, std::move(options));
  Lane& lane = (*daemon.lanes)[0];
  const auto session = daemon.Connect();
  Client client(daemon, session);
  const uint64_t sent = client.SendNop();
  EXPECT_LT(CpuShare(), 0.3);
  uint64_t held = 0, completed = 1;
  lane.Call([&] {
    const TenantTotals totals = lane.Tenants();
    held = totals.map().begin()->second.counters.at(0).held.ns[static_cast<size_t>(HeldCause::kPaused)];
    completed = lane.Find(session->id())->counters().commands_completed;
  });
  EXPECT_EQ(completed, 0u);
  EXPECT_GT(held, 200'000'000u);
  paused = false;
  lane.Call([&] { lane.GrantChanged(Tenant{}); });
  EXPECT_TRUE(client.Completes(sent));
}

TEST(Lane, AClientWhoseSessionIsClosedCannotKeepItAwake) {
  Daemon daemon(1);
  Client client(daemon, daemon.Connect());
  client.SendBreach();
  ASSERT_NE(client.Fate(), "");
  eventfd_write(client.doorbell.get(), 1);
  EXPECT_LT(CpuShare(), 0.5);
}

TEST(Lanes, AWaitHoldsUpItsQueueUntilTheOtherDeviceHasCompletedTheCommand) {
  Daemon daemon(2);
  const auto session = daemon.Connect();
  Client first(daemon, session, 0), second(daemon, session, 1);
  first.SendWait(1, 3);
  const uint64_t behind = first.SendNop();
  second.SendNop();
  EXPECT_TRUE(second.Completes(second.SendNop()));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_LT(first.transport->Completed(0), behind);
  second.SendNop();
  EXPECT_TRUE(first.Completes(behind));
}

TEST(Lanes, AWaitForNeitherACommandNorADeviceOfTheSessionIsABreach) {
  Daemon daemon(2);
  Client other_device(daemon, daemon.Connect()), no_device(daemon, daemon.Connect()),
      own_future(daemon, daemon.Connect());
  other_device.SendWait(1, 1);
  EXPECT_THAT(other_device.Fate(), HasSubstr("has not opened"));
  no_device.SendWait(~0u, 1);
  EXPECT_THAT(no_device.Fate(), HasSubstr("has not opened"));
  own_future.SendWait(0, 99);
  EXPECT_THAT(own_future.Fate(), HasSubstr("not an earlier one"));
}

// Both of its rings wait for each other. Other sessions on both lanes go on, and the lanes sleep.
TEST(Lanes, ACycleOfWaitsHurtsOnlyItsSender) {
  Daemon daemon(2);
  const auto session = daemon.Connect(), innocent = daemon.Connect();
  Client first(daemon, session, 0), second(daemon, session, 1);
  Client beside_first(daemon, innocent, 0), beside_second(daemon, innocent, 1);
  first.SendWait(1, 2);
  first.SendNop();
  second.SendWait(0, 2);
  second.SendNop();
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(beside_first.Completes(beside_first.SendNop()));
    EXPECT_TRUE(beside_second.Completes(beside_second.SendNop()));
  }
  EXPECT_EQ(first.transport->Completed(0) + second.transport->Completed(0), 0u);
  EXPECT_LT(CpuShare(), 0.7);
  daemon.lanes->Close(*session, "an operator closed it");
  EXPECT_THAT(first.Fate(), HasSubstr("operator"));
  EXPECT_THAT(second.Fate(), HasSubstr("operator"));
  EXPECT_TRUE(beside_first.Completes(beside_first.SendNop()));
}

TEST(Lanes, ABreachOnOneDeviceClosesTheSessionOnAll) {
  Daemon daemon(3);
  const auto session = daemon.Connect();
  Client first(daemon, session, 0), second(daemon, session, 1), third(daemon, session, 2);
  second.SendBreach();
  for (const Client* client : {&first, &second, &third})
    EXPECT_THAT(client->Fate(), HasSubstr("a queue does not exist"));
}

// Sessions come, wait across devices, and are closed by breaches, operators and their own ends at any moment.
TEST(Lanes, SessionsComeAndGoWhileTheyWaitForEachOthersDevices) {
  constexpr int kThreads = 4, kSessions = 25, kRounds = 20;
  Daemon daemon(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kSessions; ++i) {
        const auto session = daemon.Connect();
        Client first(daemon, session, 0), second(daemon, session, 1);
        uint64_t last = 0;
        for (int round = 0; round < kRounds; ++round) {
          first.SendWait(1, last);
          const uint64_t sent = first.SendNop();
          second.SendWait(0, sent);
          last = second.SendNop();
        }
        if ((i + t) % 3 == 0) EXPECT_TRUE(second.Completes(last));
        if ((i + t) % 3 == 1) first.SendBreach();
        daemon.lanes->Close(*session, "it hung up");
        EXPECT_NE(first.Fate(), "");
        EXPECT_NE(second.Fate(), "");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(daemon.registry.List().empty());
  size_t left = 0;
  daemon.lanes->CallEach([&](Lane& lane) {
    lane.ForEach([&](const session::DeviceSession&) { ++left; });
    EXPECT_EQ(lane.state().pool->used_bytes(), 0u);
  });
  EXPECT_EQ(left, 0u);
}

// A client that sends commands all the time, so that its lane does not sleep.
class Flood {
 public:
  Flood(Daemon& daemon, const std::shared_ptr<session::Session>& session)
      : client_(daemon, session), thread_([this] {
          while (!ends_.load()) EXPECT_TRUE(client_.Completes(client_.SendNop()));
        }) {}
  ~Flood() {
    ends_.store(true);
    thread_.join();
  }

 private:
  Client client_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

class SleepingSessions : public ::testing::Test {
 protected:
  static constexpr size_t kIdle = 40;

  SleepingSessions() {
    for (size_t i = 0; i < kIdle; ++i) {
      sessions_.push_back(daemon_.Connect());
      clients_.push_back(std::make_unique<Client>(daemon_, sessions_.back()));
    }
  }
  size_t Awake() {
    Lane& lane = (*daemon_.lanes)[0];
    size_t awake = 0;
    lane.Call([&] { awake = lane.awake_sessions(); });
    return awake;
  }
  // Whether the idle sessions fall asleep, within 10 s.
  bool FallAsleep() {
    for (int i = 0; i < 1000 && Awake() > Turns::kKeptAwake; ++i)
      std::this_thread::sleep_for(milliseconds(10));
    return Awake() <= Turns::kKeptAwake;
  }

  Daemon daemon_{1};
  std::vector<std::shared_ptr<session::Session>> sessions_;
  std::vector<std::unique_ptr<Client>> clients_;
};

TEST_F(SleepingSessions, EachWakesForItsOwnCommands) {
  const Flood flood(daemon_, daemon_.Connect());
  ASSERT_TRUE(FallAsleep());
  for (const auto& client : clients_) EXPECT_TRUE(client->Completes(client->SendNop()));
  EXPECT_TRUE(FallAsleep());
}

TEST_F(SleepingSessions, EachWakesAlsoWhenTheLaneSleeps) {
  {
    const Flood flood(daemon_, daemon_.Connect());
    ASSERT_TRUE(FallAsleep());
  }
  std::this_thread::sleep_for(milliseconds(20));  // the lane sleeps by now
  for (const auto& client : clients_) {
    EXPECT_TRUE(client->Completes(client->SendNop()));
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST_F(SleepingSessions, AreClosedAsOthersAre) {
  {
    const Flood flood(daemon_, daemon_.Connect());
    ASSERT_TRUE(FallAsleep());
    daemon_.lanes->Close(*sessions_[0], "it hung up");
    EXPECT_THAT(clients_[0]->Fate(), HasSubstr("it hung up"));
    eventfd_write(clients_[0]->doorbell.get(), 1);
    clients_[1]->SendBreach();
    EXPECT_THAT(clients_[1]->Fate(), HasSubstr("a queue does not exist"));
  }
  daemon_.lanes.reset();
  for (size_t i = 2; i < kIdle; ++i) EXPECT_THAT(clients_[i]->Fate(), HasSubstr("ending"));
}

TEST_F(SleepingSessions, LoseNoCommandWhenTheyFallAsleepAndWakeAtOnce) {
  const Flood flood(daemon_, daemon_.Connect());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 40; ++round) {
        // About as long as it takes until they may sleep.
        std::this_thread::sleep_for(std::chrono::microseconds(9'000 + 97 * ((17 * round + 5 * t) % 40)));
        for (size_t i = t; i < kIdle; i += 4) EXPECT_TRUE(clients_[i]->Completes(clients_[i]->SendNop()));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ReaderBudgetTest, ReadersGetOneHundredthOfTheTime) {
  ReaderBudget budget;
  EXPECT_EQ(budget.due_ns(), 0u);
  uint64_t now = 1000, spent = 0;
  for (const uint64_t taken : {50'000, 10'000, 1, 30'000}) {
    now = std::max(now, budget.due_ns());
    budget.Spend(now, now + taken);
    now += taken;
    spent += taken;
  }
  EXPECT_GE(budget.due_ns(), 100 * spent);
  EXPECT_LE(budget.due_ns(), 100 * spent + 4 * 99 * 25'000 + 1000) << "each visit counts 25 us more";
  budget.Spend(now, now + 60'000'000'000);  // the thread was stopped
  EXPECT_LE(budget.due_ns(), now + 61'000'000'000);
}

TEST(LaneTest, ReadersWaitForTheirPart) {
  Daemon daemon(1);
  Lane& lane = (*daemon.lanes)[0];
  uint64_t began = 0, ended = 0, next = 0;
  lane.Visit([&] {
    began = NowNs();
    while (NowNs() < began + 100'000) {
    }
    ended = NowNs();
  });
  lane.Visit([&] { next = NowNs(); });
  EXPECT_GE(next - ended, 99 * 100'000u);
}

TEST(LaneTest, AProfileIsUsedAndFreedOnAnotherThread) {
  Daemon daemon(1);
  const auto session = daemon.Connect();
  Client client(daemon, session);
  Lane& lane = (*daemon.lanes)[0];
  std::thread::id of_lane;
  std::promise<std::pair<std::thread::id, bool>> used;
  lane.Call([&] {
    of_lane = std::this_thread::get_id();
    ASSERT_TRUE(lane.profiles().StartForClient(session->id(), 10).ok());
    lane.profiles().TakeForClient(session->id(), [&](const records::Profile* profile) {
      used.set_value({std::this_thread::get_id(), profile != nullptr});
    });
  });
  const auto [thread, there] = used.get_future().get();
  EXPECT_NE(thread, of_lane);
  EXPECT_TRUE(there);
}

// ---- how memory changes while sessions are profiled

class MemorySamples : public ::testing::Test {
 protected:
  void Start(records::Audience audience = records::Audience::kOperators) {
    absl::StatusOr<size_t> started;
    lane_.Call([&] { started = lane_.profiles().Start({audience, {}, 100, UINT64_MAX}); });
    ASSERT_TRUE(started.ok()) << started.status();
  }
  void Stop() {
    lane_.Call([&] { lane_.profiles().Stop(records::Audience::kOperators, {}); });
  }
  // Takes a chunk of its own.
  void Allocate(uint64_t bytes) {
    ASSERT_TRUE(client_->Completes(client_->Send(
        wire::AllocateCommand{wire::Header(wire::CommandKind::kAllocate, 0, sizeof(wire::AllocateCommand)),
                              {++buffers_, 1},
                              bytes})));
  }
  std::vector<records::MemorySample> Samples() {
    std::vector<records::MemorySample> samples;
    lane_.Call([&] {
      const records::MemoryHistory& history = lane_.profiles().memory();
      for (uint64_t i = history.first(); i < history.added(); ++i) samples.push_back(history[i]);
    });
    return samples;
  }
  // What the tenant has on the device by the last sample.
  uint64_t LastOnDevice() {
    const auto samples = Samples();
    return samples.empty() ? 0 : samples.back().bytes.on_device;
  }
  bool BecomesAtLeast(uint64_t bytes) {
    return Within([&] { return LastOnDevice() >= bytes; });
  }
  bool EndsByItself() {
    return Within([&] {
      bool samples = true;
      lane_.Call([&] { samples = lane_.profiles().samples_memory(); });
      return !samples;
    });
  }
  // Returns whether `holds` becomes true within 5 s.
  static bool Within(absl::FunctionRef<bool()> holds) {
    for (int i = 0; i < 1000 && !holds(); ++i) std::this_thread::sleep_for(milliseconds(5));
    return holds();
  }
  static void WaitUntilSamplesAreDue() { std::this_thread::sleep_for(milliseconds(110)); }

  Daemon daemon_{1};
  Lane& lane_ = (*daemon_.lanes)[0];
  std::shared_ptr<session::Session> session_ = daemon_.Connect();
  std::optional<Client> client_{std::in_place, daemon_, session_};
  uint32_t buffers_ = 0;
};

TEST_F(MemorySamples, AreTakenWhileOperatorsProfile) {
  Allocate(kMiB);
  Start(records::Audience::kUser);
  WaitUntilSamplesAreDue();
  EXPECT_TRUE(Samples().empty()) << "users' profiles have none";
  Start();
  ASSERT_TRUE(BecomesAtLeast(kMiB));
  const uint64_t before = LastOnDevice();
  Allocate(32 * kMiB);
  EXPECT_TRUE(BecomesAtLeast(before + 32 * kMiB));
  Start();  // one runs
  EXPECT_GE(Samples().size(), 2u);
  EXPECT_EQ(*Samples().front().tenant, "uid:0");
  Stop();
  ASSERT_TRUE(EndsByItself());
  const uint64_t stopped = LastOnDevice();
  Allocate(48 * kMiB);
  Start(records::Audience::kUser);
  WaitUntilSamplesAreDue();
  EXPECT_EQ(LastOnDevice(), stopped) << "it can still be read";
  Start();
  EXPECT_TRUE(BecomesAtLeast(stopped + 48 * kMiB));
  EXPECT_EQ(Samples().size(), 1u) << "it has begun anew";
}

TEST_F(MemorySamples, ASleepingLaneTakesNoneAndKnowsWhenItFellAsleep) {
  Start();
  for (uint64_t bytes = kMiB; bytes <= 32 * kMiB; bytes *= 2) Allocate(bytes);  // in less than 10 ms
  const uint64_t sent = NowNs();
  std::this_thread::sleep_for(milliseconds(400));
  const auto samples = Samples();
  ASSERT_FALSE(samples.empty());
  EXPECT_GE(samples.back().bytes.on_device, 63 * kMiB);
  EXPECT_LT(samples.back().time_ns, sent + 200'000'000) << "not when it was woken";
}

TEST_F(MemorySamples, ASessionThatEndsLeavesNothing) {
  Allocate(kMiB);
  Start();
  ASSERT_TRUE(BecomesAtLeast(kMiB));
  lane_.Call([&] { lane_.Close(session_->id(), "it ends"); });
  EXPECT_TRUE(EndsByItself()) << "no profile runs";
  EXPECT_EQ(LastOnDevice(), 0u);
  ASSERT_EQ(Samples().size(), 2u);
  EXPECT_EQ(*Samples().back().tenant, "uid:0");
  // A session that comes is profiled, and the history goes on.
  session_ = daemon_.Connect();
  client_.emplace(daemon_, session_);
  buffers_ = 0;
  Allocate(kMiB);
  EXPECT_TRUE(BecomesAtLeast(kMiB));
  EXPECT_EQ(Samples().size(), 3u);
}

}  // namespace
}  // namespace xpud::lane
