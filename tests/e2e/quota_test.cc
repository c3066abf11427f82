// Limits of sessions' memory: credit, and quotas that xpuctl sets while sessions run.
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/round_size.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_session.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;
constexpr std::chrono::milliseconds kSoon{5000};

class Quota : public ::testing::Test {
 protected:
  static constexpr int kFirstSession = 1;

  Quota() : session_(daemon_.Connect("first")), queue_(session_->DefaultQueue(0)) {}

  void Set(const std::string& whose, const std::string& size) {
    std::string answer;
    ASSERT_EQ(daemon_.Ask("quota " + whose + " " + size, answer), 0) << answer;
  }
  static absl::Status Refusal(const Queue& queue, uint64_t bytes) { return queue.Allocate(bytes).status(); }

  DaemonProcess daemon_;
  std::unique_ptr<Session> session_;
  Queue queue_;
};

TEST_F(Quota, IsMetWhereTheUserAllocatesAndOnlyThere) {
  const auto other = daemon_.Connect("second");
  const Queue others = other->DefaultQueue(0);
  Set("session:" + std::to_string(kFirstSession), "64MiB");
  auto held = queue_.Allocate(40 * kMiB);
  ASSERT_TRUE(held.ok()) << held.status();
  const absl::Status refusal = Refusal(queue_, 30 * kMiB);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refusal.message()),
              AllOf(HasSubstr("Tried to allocate 30.00 MiB."),
                    HasSubstr("of the 64.00 MiB that this process may hold, ")));
  EXPECT_TRUE(queue_.Allocate(20 * kMiB).ok());
  EXPECT_TRUE(others.Allocate(300 * kMiB).ok());
  EXPECT_TRUE(queue_.Synchronize().ok());
  held = Buffer();
  EXPECT_TRUE(queue_.Allocate(60 * kMiB).ok());
  Set("session:" + std::to_string(kFirstSession), "none");
  EXPECT_TRUE(queue_.Allocate(300 * kMiB).ok());
  EXPECT_TRUE(queue_.Synchronize().ok());
}

// The tenant's quota counts shared memory once, a session's own what the session has.
TEST_F(Quota, OfTheTenantCountsSharedMemoryOnce) {
  if (std::getenv("XPUD_TEST_REMOTE") != nullptr)
    GTEST_SKIP() << "quotas of remote tenants: remote_tenants_test";
  const auto receiver = daemon_.Connect("second");
  const auto held = queue_.Allocate(64 * kMiB);
  ASSERT_TRUE(held.ok()) << held.status();
  const Ticket ticket = *session_->Share(*held);
  Set(std::to_string(getuid()), "96MiB");
  const auto attached = receiver->Attach(ticket);
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_TRUE(receiver->DefaultQueue(0).Allocate(24 * kMiB).ok());
  EXPECT_FALSE(receiver->DefaultQueue(0).Allocate(40 * kMiB).ok());
  Set("session:2", "80MiB");
  const Ticket again = *session_->Share(*held);
  const absl::Status refused = receiver->Attach(again).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("64.00 MiB"), HasSubstr("80.00 MiB")));
  Set("session:2", "none");
  EXPECT_TRUE(receiver->Attach(again).ok()) << "the ticket is still there";
}

TEST_F(Quota, LoweredTakesBackWhatIsNotInUseAndLeavesTheRest) {
  if (std::getenv("XPUD_TEST_REMOTE") != nullptr)
    GTEST_SKIP() << "a remote client may use what it knows of for a second more";
  const auto held = queue_.Allocate(100 * kMiB);
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(queue_.Synchronize().ok());
  Set("session:" + std::to_string(kFirstSession), "16M");

  EXPECT_EQ(Refusal(queue_, kMiB).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue_.Synchronize().ok());
  EXPECT_EQ(daemon_.StatusOf("memory_used_bytes"), static_cast<int64_t>(RoundSize(100 * kMiB)));
}

TEST_F(Quota, IsSharedByAUsersSessions) {
  const auto other = daemon_.Connect("second");
  const Queue others = other->DefaultQueue(0);
  Set(std::to_string(getuid()), "100MiB");
  auto held = queue_.Allocate(60 * kMiB);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_THAT(std::string(Refusal(others, 60 * kMiB).message()),
              HasSubstr("of the 100.00 MiB that this user's processes may hold, "));
  held = Buffer();
  ASSERT_TRUE(queue_.Synchronize().ok());
  // The first session is idle, so its credit is taken back.
  EXPECT_TRUE(Within(kSoon, [&] { return others.Allocate(90 * kMiB).ok(); }));
}

TEST_F(Quota, CreditOfOthersIsNotToBeHad) {
  const auto other = daemon_.Connect("second");
  const Queue others = other->DefaultQueue(0);
  Set("default", "1024T");
  const uint64_t most = session_->devices()[0].total_memory / 5 * 3;
  auto held = queue_.Allocate(most);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_THAT(std::string(Refusal(others, most).message()), HasSubstr("that all processes share, "));
  EXPECT_TRUE(others.Synchronize().ok());
  held = Buffer();
  ASSERT_TRUE(queue_.Synchronize().ok());
  EXPECT_TRUE(Within(kSoon, [&] { return others.Allocate(most).ok(); }));
}

TEST_F(Quota, BindsAClientThatDoesNotAsk) {
  Set("default", "32MiB");
  RawSession raw(daemon_.socket());
  raw.Send(wire::AllocateCommand{
      HeaderOf<wire::AllocateCommand>(wire::CommandKind::kAllocate), {1, 1}, 24 * kMiB});
  EXPECT_TRUE(raw.Synchronize().ok());
  raw.Send(wire::AllocateCommand{
      HeaderOf<wire::AllocateCommand>(wire::CommandKind::kAllocate), {2, 1}, 24 * kMiB});
  EXPECT_TRUE(raw.Synchronize().ok());
  EXPECT_EQ(raw.transport().Errors(0), 1u);
  EXPECT_THAT(std::string(raw.transport().LastError(0).message()), HasSubstr("out of memory"));
  EXPECT_EQ(daemon_.StatusOf("memory_used_bytes"), static_cast<int64_t>(RoundSize(24 * kMiB)));
}

// Also after a failed allocation that the client has counted and the daemon has not.
TEST_F(Quota, CreditCoversWhatIsAskedForInAll) {
  Set("default", "64MiB");
  RawSession raw(daemon_.socket());
  const auto header = HeaderOf<wire::AllocateCommand>(wire::CommandKind::kAllocate);
  raw.Send(wire::AllocateCommand{header, {1, 1}, 80 * kMiB});  // fails
  EXPECT_TRUE(raw.Synchronize().ok());
  EXPECT_EQ(raw.transport().Errors(0), 1u);
  raw.Send(wire::ReserveCommand{HeaderOf<wire::ReserveCommand>(wire::CommandKind::kReserve), 60 * kMiB});
  EXPECT_TRUE(raw.Synchronize().ok());
  EXPECT_FALSE(raw.transport().Refusal().has_value());
  EXPECT_TRUE(raw.transport().Claim(60 * kMiB));
}

TEST_F(Quota, AsksForNonsenseAreRefused) {
  RawSession raw(daemon_.socket());
  for (const uint64_t bytes : {uint64_t{1} << 50, UINT64_MAX, UINT64_MAX - 511}) {
    raw.Send(wire::ReserveCommand{HeaderOf<wire::ReserveCommand>(wire::CommandKind::kReserve), bytes});
    EXPECT_TRUE(raw.Synchronize().ok());
    EXPECT_TRUE(raw.transport().Refusal().has_value()) << bytes;
  }
  raw.Send(wire::ReserveCommand{HeaderOf<wire::ReserveCommand>(wire::CommandKind::kReserve), 0});
  EXPECT_TRUE(raw.Synchronize().ok());
  EXPECT_FALSE(raw.transport().Refusal().has_value());
}

TEST_F(Quota, IsSetForWhatThereIs) {
  std::string answer;
  EXPECT_EQ(daemon_.Ask("quota session:77 1GiB", answer), 1);
  EXPECT_THAT(answer, HasSubstr("there is no session 77"));
  EXPECT_EQ(daemon_.Ask("quota default 1GiB --device 9", answer), 1);
  EXPECT_THAT(answer, HasSubstr("there is no device 9"));
  EXPECT_EQ(daemon_.Ask("quota default lots", answer), 2);
  EXPECT_EQ(daemon_.Ask("quota no-such-user 1GiB", answer), 2);
  EXPECT_EQ(daemon_.Ask("quota default", answer), 2);
  EXPECT_EQ(daemon_.Ask("quota -o json", answer), 0);
  EXPECT_THAT(answer, AllOf(HasSubstr("\"default\":true"), HasSubstr("\"session\":")));
}

// Memory that was freed but is used by work in flight: the session waits for it instead of being refused.
TEST(QuotaOfAnAsynchronousDevice, WaitsForWhatWasFreed) {
  DaemonProcess daemon({"--asynchronous"});
  const auto session = daemon.Connect();
  const Queue queue = session->DefaultQueue(0);
  std::string answer;
  ASSERT_EQ(daemon.Ask("quota session:1 64MiB", answer), 0) << answer;
  for (int round = 0; round < 50; ++round) {
    const uint64_t bytes = (40 + round % 3 * 10) * kMiB;
    const auto tensor = Tensor::Empty(queue, ops::DType::kFloat32, {static_cast<int64_t>(bytes / 4)});
    ASSERT_TRUE(tensor.ok()) << round << ": " << tensor.status();
    const TensorRef out = tensor->ref(), in[] = {TensorRef::Immediate(1.0), TensorRef::Immediate(2.0)};
    ASSERT_TRUE(queue.Execute({&ops::RowOf("mul.Tensor"), ops::DType::kFloat32, {&out, 1}, in, {}}).ok());
  }
  EXPECT_TRUE(queue.Synchronize().ok());
}

}  // namespace
}  // namespace xpud::e2e
