// Memory that sessions share by ticket, through a real daemon: who sees what, who is charged, and when it
// ends.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sdk/control/client.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/floats.h"
#include "tests/e2e/raw_session.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr milliseconds kSoon{5000};
constexpr uint64_t kMiB = 1 << 20;

class SharedMemoryTest : public ::testing::Test {
 protected:
  Floats Make(Session& session, uint64_t bytes, float value) {
    Floats made = {session.DefaultQueue(0), *session.DefaultQueue(0).Allocate(bytes)};
    EXPECT_TRUE(made.Fill(value).ok());
    return made;
  }
  static Floats Attach(Session& session, const Ticket& ticket) {
    auto buffer = session.Attach(ticket);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return {session.DefaultQueue(0), buffer.ok() ? *std::move(buffer) : Buffer()};
  }
  bool IsEmpty() const {
    return Within(kSoon, [&] { return daemon_.StatusOf("memory_used_bytes") == 0; });
  }

  DaemonProcess daemon_;
  std::unique_ptr<Session> sender_ = daemon_.Connect("sender"), receiver_ = daemon_.Connect("receiver");
};

TEST_F(SharedMemoryTest, BothReadAndWriteTheSame) {
  const Floats ours = Make(*sender_, kMiB, 1);
  const auto ticket = sender_->Share(ours.buffer);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const Floats theirs = Attach(*receiver_, *ticket);
  ASSERT_EQ(theirs.buffer.bytes(), kMiB);
  EXPECT_THAT(*theirs.Read(), Each(1));
  ASSERT_TRUE(theirs.Add(2).ok() && theirs.queue.Synchronize().ok());
  EXPECT_THAT(*ours.Read(), Each(3));
  ASSERT_TRUE(ours.Add(4).ok() && ours.queue.Synchronize().ok());
  EXPECT_THAT(*theirs.Read(), Each(7));
}

// The number is the same for all tickets of one memory, and for no other.
TEST_F(SharedMemoryTest, TicketsOfOneMemorySayThat) {
  const Floats a = Make(*sender_, 4096, 1), b = Make(*sender_, 4096, 1);
  const Ticket first = *sender_->Share(a.buffer), second = *sender_->Share(a.buffer),
               other = *sender_->Share(b.buffer);
  EXPECT_EQ(first.memory, second.memory);
  EXPECT_NE(first.key, second.key);
  EXPECT_NE(first.memory, other.memory);
  const Floats theirs = Attach(*receiver_, second);
  EXPECT_EQ(receiver_->Share(theirs.buffer)->memory, first.memory) << "a receiver can send it on";
}

TEST_F(SharedMemoryTest, WhatTheSenderHadBegunIsComplete) {
  const Floats ours = Make(*sender_, kMiB, 0);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(ours.Add(1).ok());
    const Floats theirs = Attach(*receiver_, *sender_->Share(ours.buffer));
    ASSERT_THAT(*theirs.Read(), Each(10 * (round + 1)));
  }
}

TEST_F(SharedMemoryTest, WhatOtherQueuesOfTheSenderHadBegunIsComplete) {
  Floats ours = Make(*sender_, kMiB, 0);
  ours.queue = *sender_->CreateQueue(0);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(ours.Add(1).ok());
  const Ticket ticket = *sender_->Share(ours.buffer);
  ASSERT_TRUE(sender_->DestroyQueue(ours.queue).ok());
  EXPECT_THAT(*Attach(*receiver_, ticket).Read(), Each(20));
}

TEST_F(SharedMemoryTest, EndsWithItsLastUser) {
  std::optional<Floats> ours = Make(*sender_, kMiB, 5);
  Floats theirs = Attach(*receiver_, *sender_->Share(ours->buffer));
  ours.reset();
  EXPECT_THAT(*theirs.Read(), Each(5));
  sender_.reset();
  EXPECT_THAT(*theirs.Read(), Each(5));
  EXPECT_GE(daemon_.StatusOf("memory_used_bytes"), static_cast<int64_t>(kMiB));
  theirs.buffer.Free();
  ASSERT_TRUE(theirs.queue.Synchronize().ok());
  EXPECT_TRUE(IsEmpty());
}

TEST_F(SharedMemoryTest, OutlivesASenderThatIsKilled) {
  std::array<int, 2> pipe;
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto session = daemon_.Connect("child");
    const Floats made = Make(*session, kMiB, 3);
    for (int i = 0; i < 100; ++i) (void)made.Add(1);
    const Ticket ticket = *session->Share(made.buffer);
    (void)!write(pipe[1], &ticket, sizeof(ticket));
    pause();
  }
  Ticket ticket;
  ASSERT_EQ(read(pipe[0], &ticket, sizeof(ticket)), static_cast<ssize_t>(sizeof(ticket)));
  SignalProcess(child, SIGKILL);
  waitpid(child, nullptr, 0);
  Floats theirs = Attach(*receiver_, ticket);
  EXPECT_THAT(*theirs.Read(), Each(103));
  theirs.buffer.Free();
  ASSERT_TRUE(theirs.queue.Synchronize().ok());
  EXPECT_TRUE(IsEmpty());
}

TEST_F(SharedMemoryTest, ATicketThatIsNoneSaysNoMore) {
  const Floats ours = Make(*sender_, 4096, 1);
  const Ticket ticket = *sender_->Share(ours.buffer);
  Ticket invented = ticket;
  invented.key[1] ^= 1;
  const absl::Status unknown = receiver_->Attach(invented).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  const Floats theirs = Attach(*receiver_, ticket);
  EXPECT_EQ(receiver_->Attach(ticket).status(), unknown) << "it was taken";
  const Ticket returned = *sender_->Share(ours.buffer);
  EXPECT_TRUE(receiver_->ReturnTicket(returned).ok());
  EXPECT_EQ(receiver_->Attach(returned).status(), unknown);
  // What was refused is as if it had never been: ids go on.
  EXPECT_THAT(*Make(*receiver_, 4096, 6).Read(), Each(6));
  EXPECT_THAT(*theirs.Read(), Each(1));
}

TEST_F(SharedMemoryTest, BuffersWithoutBytesAreRefused) {
  const Buffer empty = *sender_->DefaultQueue(0).Allocate(0);
  EXPECT_EQ(sender_->Share(empty).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sender_->Share(Buffer()).status().code(), absl::StatusCode::kInvalidArgument);
  const Floats theirs = Make(*receiver_, 4096, 1);
  EXPECT_EQ(sender_->Share(theirs.buffer).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SharedMemoryTest, AUserHas4096Tickets) {
  const Floats ours = Make(*sender_, 4096, 1);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 4096; ++i) tickets.push_back(*sender_->Share(ours.buffer));
  for (Session* session : {sender_.get(), receiver_.get()}) {
    const Floats more = Make(*session, 4096, 1);
    const absl::Status refused = session->Share(more.buffer).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("4096"));
    EXPECT_THAT(*more.Read(), Each(1));
  }
  EXPECT_TRUE(receiver_->ReturnTicket(tickets.back()).ok());
  EXPECT_TRUE(sender_->Share(ours.buffer).ok());
}

TEST_F(SharedMemoryTest, IsChargedToTheTenantOnceAndToNoSession) {
  const Floats ours = Make(*sender_, 64 * kMiB, 1);
  const Floats theirs = Attach(*receiver_, *sender_->Share(ours.buffer));
  EXPECT_EQ(daemon_.StatusOf("memory_used_bytes"), static_cast<int64_t>(64 * kMiB));
  EXPECT_EQ(sender_->Memory(0).allocated_bytes, 64 * kMiB);
  EXPECT_EQ(receiver_->Memory(0).allocated_bytes, 64 * kMiB);
}

// Threads that share, receive, allocate and free: both ends count alike, and nothing is left.
TEST_F(SharedMemoryTest, IsShownToOperatorsAsOneMemoryOfItsTenant) {
  auto client = control::Client::Connect(daemon_.socket());
  ASSERT_TRUE(client.ok()) << client.status();
  const auto tenant = [&] {
    const auto list = client->ListMemory();
    EXPECT_TRUE(list.ok() && list->tenants_size() == 1) << list.status();
    return list.ok() && list->tenants_size() == 1 ? list->tenants(0) : v1::TenantMemory();
  };
  const Floats ours = Make(*sender_, kMiB, 1);
  ASSERT_TRUE(ours.queue.Synchronize().ok());
  EXPECT_EQ(tenant().shared_bytes(), 0u);
  EXPECT_EQ(tenant().holds_bytes(), kMiB);
  const Ticket ticket = *sender_->Share(ours.buffer);
  EXPECT_EQ(tenant().sharers(), 1u);
  Floats theirs = Attach(*receiver_, ticket);
  EXPECT_EQ(tenant().sharers(), 2u);
  EXPECT_EQ(tenant().shared_bytes(), kMiB);
  EXPECT_EQ(tenant().holds_bytes(), kMiB) << "it is there once";
  theirs.buffer.Free();
  ASSERT_TRUE(theirs.queue.Synchronize().ok());
  EXPECT_TRUE(Within(kSoon, [&] { return tenant().sharers() == 1; }));
}

TEST_F(SharedMemoryTest, ManyAtOnceLeaveNothing) {
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Session& from = t % 2 == 0 ? *sender_ : *receiver_;
      Session& to = t / 2 == 0 ? *sender_ : *receiver_;
      for (int i = 0; i < 200; ++i) {
        const uint64_t bytes = 512u << (i % 12);
        const Floats ours = Make(from, bytes, static_cast<float>(i));
        const auto first = from.Share(ours.buffer), second = from.Share(ours.buffer);
        if (!first.ok() || !second.ok()) {
          ++failures;
          continue;
        }
        const Floats theirs = Attach(to, *first);
        const auto read = theirs.Read();
        if (!read.ok() || *read != std::vector<float>(bytes / 4, static_cast<float>(i))) ++failures;
        if (!to.ReturnTicket(*second).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(sender_->Memory(0).buffers, 0u);
  ASSERT_TRUE(sender_->Synchronize(0).ok() && receiver_->Synchronize(0).ok());
  EXPECT_TRUE(IsEmpty());
}

// A session that was refused an update must not hide that from others.
TEST_F(SharedMemoryTest, PoisonCrossesSessions) {
  const Floats ours = Make(*sender_, 4096, 1);
  const Floats theirs = Attach(*receiver_, *sender_->Share(ours.buffer));
  // A wrong command: its output has another size than its inputs.
  const int64_t sizes[] = {4}, others[] = {8};
  TensorRef output, input;
  output.kind = input.kind = TensorRef::Kind::kTensor;
  output.rank = input.rank = 1;
  output.buffer = input.buffer = ours.buffer.handle();
  output.sizes = sizes;
  input.sizes = others;
  const TensorRef outputs[] = {output},
                  inputs[] = {input, TensorRef::Immediate(1.0), TensorRef::Immediate(1.0)};
  OpCall call;
  call.row = &ops::RowOf("add.Tensor");
  call.outputs = outputs;
  call.inputs = {inputs, call.row->inputs};
  ASSERT_TRUE(ours.queue.Execute(call).ok());
  // The sender does not ask; but the daemon has come to it once it has answered this.
  ASSERT_TRUE(sender_->Share(ours.buffer).ok());
  const absl::Status read = theirs.Read().status();
  EXPECT_EQ(read.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(read.message()),
              AllOf(HasSubstr("another process shares"), HasSubstr("add.Tensor")));
  EXPECT_FALSE(theirs.Read().ok()) << "until the sender has seen its error";
  const absl::Status own = ours.queue.Synchronize();
  EXPECT_THAT(std::string(own.message()),
              AllOf(HasSubstr("add.Tensor"), testing::Not(HasSubstr("another process"))));
  ASSERT_TRUE(sender_->Share(ours.buffer).ok());  // the report has arrived
  EXPECT_THAT(*theirs.Read(), Each(1)) << "the old contents stand";
}

TEST_F(SharedMemoryTest, PoisonInPlaceEndsWithItsSession) {
  Floats ours = Make(*sender_, 4096, 1);
  const Floats theirs = Attach(*receiver_, *sender_->Share(ours.buffer));
  {
    const Buffer small = *ours.queue.Allocate(64);
    EXPECT_TRUE(ours.queue.Copy(small.handle(), 64, ours.buffer.handle(), 0, 64).ok());  // leaves its buffer
  }
  ASSERT_TRUE(sender_->Share(ours.buffer).ok());
  EXPECT_FALSE(theirs.Read().ok());
  ours = {};
  sender_.reset();
  EXPECT_TRUE(Within(kSoon, [&] { return theirs.Read().ok(); }));
  EXPECT_THAT(*theirs.Read(), Each(1));
}

// What breaks the protocol ends its session, and only it.
TEST_F(SharedMemoryTest, BreachesEndTheirSession) {
  if (std::getenv("XPUD_TEST_REMOTE") != nullptr) GTEST_SKIP() << "a raw session is on this machine";
  const auto share = [](wire::Handle buffer, uint32_t slot = 3) {
    return wire::ShareCommand{
        HeaderOf<wire::ShareCommand>(wire::CommandKind::kShare), buffer, {0, 1, 2, slot}};
  };
  const auto attach = [](wire::Handle buffer, uint32_t slot = 3) {
    return wire::AttachCommand{
        HeaderOf<wire::AttachCommand>(wire::CommandKind::kAttach), buffer, {1, 2}, {0, 1, 2, slot}};
  };
  const wire::AllocateCommand allocate = {
      HeaderOf<wire::AllocateCommand>(wire::CommandKind::kAllocate), {1, 2}, 64};
  const wire::FreeCommand free = {HeaderOf<wire::FreeCommand>(wire::CommandKind::kFree), {1, 2}};
  const std::pair<std::function<void(RawSession&)>, const char*> breaches[] = {
      {[&](RawSession& raw) { raw.Send(share({0, 0})); }, "does not exist"},
      {[&](RawSession& raw) { raw.Send(share({1, 1})); }, "does not exist"},
      {[&](RawSession& raw) { raw.Send(share({1, 2}, wire::kMaxTimestamps)); }, "slot is out of range"},
      {[&](RawSession& raw) {
         raw.Send(free);
         raw.Send(share({1, 2}));
       },
       "does not exist"},
      {[&](RawSession& raw) { raw.Send(attach({1, 3})); }, "in use or out of order"},
      {[&](RawSession& raw) { raw.Send(attach({0, 1})); }, "in use or out of order"},
      {[&](RawSession& raw) { raw.Send(attach({4, 1})); }, "in use or out of order"},
      {[&](RawSession& raw) { raw.Send(attach({2, 1}, UINT32_MAX)); }, "slot is out of range"},
  };
  for (const auto& [breach, why] : breaches) {
    RawSession raw(daemon_.address());
    raw.Send(allocate);
    raw.Send(share({1, 2}));
    raw.Send(attach({2, 1}));  // refused: no breach
    raw.Send(wire::FreeCommand{HeaderOf<wire::FreeCommand>(wire::CommandKind::kFree), {2, 1}});
    ASSERT_TRUE(raw.Synchronize().ok());
    breach(raw);
    EXPECT_THAT(raw.Fate(), HasSubstr(why));
  }
  EXPECT_THAT(*Make(*receiver_, 4096, 2).Read(), Each(2));
}

// ---- executors that are lost

class SharedOnExecutor : public ::testing::Test {
 protected:
  static absl::Status Misbehave(const Floats& output, const char* row) {
    const int64_t sizes[] = {output.count()};
    TensorRef all;
    all.kind = TensorRef::Kind::kTensor;
    all.rank = 1;
    all.buffer = output.buffer.handle();
    all.sizes = sizes;
    OpCall call;
    call.row = &ops::RowOf(row);
    call.outputs = call.inputs = {&all, 1};
    return output.queue.Execute(call);
  }
  Floats Make(Session& session, float value) {
    Floats made = {session.DefaultQueue(0), *session.DefaultQueue(0).Allocate(1024)};
    EXPECT_TRUE(made.Fill(value).ok());
    return made;
  }
  Floats Attach(const Ticket& ticket) { return {receiver_->DefaultQueue(0), *receiver_->Attach(ticket)}; }

  DaemonProcess daemon_{{"--executor", "process", "--test-kernels"}};
  std::unique_ptr<Session> sender_ = daemon_.Connect("sender"), receiver_ = daemon_.Connect("receiver");
};

TEST_F(SharedOnExecutor, MemorySurvivesTheExecutor) {
  const Floats ours = Make(*sender_, 1);
  const Floats theirs = Attach(*sender_->Share(ours.buffer));
  ASSERT_TRUE(ours.Add(1).ok() && ours.queue.Synchronize().ok());
  SignalProcess(daemon_.AwaitExecutor(), SIGKILL);
  EXPECT_THAT(*theirs.Read(), Each(2));
  ASSERT_TRUE(theirs.Add(1).ok() && theirs.queue.Synchronize().ok());
  EXPECT_THAT(*ours.Read(), Each(3));
}

// What the session that is blamed was writing is neither old nor new; what it was not writing is as it was.
TEST_F(SharedOnExecutor, WhatAGuiltySessionWasWritingIsPoisoned) {
  const Floats written = Make(*sender_, 1), quiet = Make(*sender_, 2);
  const Floats theirs = Attach(*sender_->Share(written.buffer)),
               others = Attach(*sender_->Share(quiet.buffer));
  ASSERT_TRUE(sender_->Synchronize(0).ok());
  ASSERT_TRUE(Misbehave(written, "xpud::test_fault").ok());
  EXPECT_THAT(std::string(sender_->Synchronize(0).message()), HasSubstr("closed this session"));
  EXPECT_TRUE(Within(kSoon, [&] { return !theirs.Read().ok(); }));
  EXPECT_THAT(std::string(theirs.Read().status().message()),
              AllOf(HasSubstr("another process shares"), HasSubstr("closed a session while it wrote")));
  EXPECT_THAT(*others.Read(), Each(2));
  ASSERT_TRUE(theirs.Fill(7).ok());
  EXPECT_THAT(*theirs.Read(), Each(7)) << "until it is overwritten";
}

}  // namespace
}  // namespace xpud::e2e
