// A client that profiles itself in every wrong way, and as much as it can.
#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "proto/transport/profile.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using ::testing::HasSubstr;
using transport::RequestKind;

class Profiles : public Isolation {
 protected:
  void SetUp() override {
    if (IsRemote()) GTEST_SKIP() << "a session with another machine is profiled there";
  }
};

// Returns the answer's text, and the memory that came with it.
std::string Ask(HostileSession& session, const transport::Request& request, UniqueFd* memory = nullptr,
                std::span<const int> fds = {}) {
  EXPECT_TRUE(transport::SendMessage(session.socket(), std::as_bytes(std::span(&request, 1)), fds).ok());
  transport::Answer answer = {};
  UniqueFd none;
  const absl::Status received =
      transport::ReceiveMessage(session.socket(), std::as_writable_bytes(std::span(&answer, 1)),
                                {memory == nullptr ? &none : memory, 1});
  if (!received.ok()) return "closed";
  return answer.code == 0 ? "ok" : transport::GetText(answer.text);
}

TEST_F(Profiles, OfWrongSizesAreRefused) {
  auto session = std::make_unique<HostileSession>(socket());
  for (const uint64_t commands : {uint64_t{0}, transport::kMaxProfileCommands + 1, ~uint64_t{0}})
    EXPECT_THAT(Ask(*session, {RequestKind::kStartProfile, 0, commands, 0}),
                HasSubstr("it keeps 1 to 1000000"));
  EXPECT_THAT(Ask(*session, {RequestKind::kStopProfile, 0, 0, 0}), HasSubstr("no profile was started"));
  EXPECT_TRUE(session->Settle().ok());
  session.reset();
  ExpectAsBefore();
}

TEST_F(Profiles, OfDevicesThatAreNotOpenEndTheSession) {
  for (const RequestKind kind : {RequestKind::kStartProfile, RequestKind::kStopProfile}) {
    for (const uint32_t device : {1u, 15u, 64u, ~0u}) {
      HostileSession session(socket());
      EXPECT_EQ(Ask(session, {kind, device, 10, 0}), "closed") << device;
    }
    HostileSession session(socket());
    const int fd = session.socket();
    EXPECT_EQ(Ask(session, {kind, 0, 10, 0}, nullptr, {&fd, 1}), "closed") << "a descriptor was sent";
  }
  ExpectAsBefore();
}

TEST_F(Profiles, KeepTheNewestCommandsAndCannotBeWritten) {
  HostileSession session(socket());
  EXPECT_EQ(Ask(session, {RequestKind::kStartProfile, 0, 100, 0}), "ok");
  session.Put(Allocate({1, 1}, 64));
  for (int i = 0; i < 1000; ++i) session.Put(UploadInline({1, 1}, 0, std::vector<std::byte>(8)));
  ASSERT_TRUE(session.Settle().ok());
  UniqueFd memory;
  ASSERT_EQ(Ask(session, {RequestKind::kStopProfile, 0, 0, 0}, &memory), "ok");
  const auto profile = transport::ReadProfile(memory);
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_EQ(profile->records.size(), 100u);
  EXPECT_EQ(profile->records.back().sequence, session.sequence());
  EXPECT_EQ(profile->overwritten + 100, session.sequence());
  EXPECT_EQ(profile->records.back().kind, wire::CommandKind::kUploadInline);
  EXPECT_THAT(Ask(session, {RequestKind::kStopProfile, 0, 0, 0}), HasSubstr("no profile was started"));
}

uint64_t BytesOf(const UniqueFd& memory) {
  struct stat info;
  EXPECT_EQ(fstat(memory.get(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

TEST_F(Profiles, ThatWereSentTakeNoMemoryAfterTheSessionOrTheNextProfile) {
  auto session = std::make_unique<HostileSession>(socket());
  std::vector<UniqueFd> sent;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Ask(*session, {RequestKind::kStartProfile, 0, 10'000, 0}), "ok");
    for (int n = 0; n < 10'000; ++n)
      session->Put(wire::NopCommand{wire::Header(wire::CommandKind::kNop, 0, sizeof(wire::NopCommand))});
    ASSERT_TRUE(session->Settle().ok());
    ASSERT_EQ(Ask(*session, {RequestKind::kStopProfile, 0, 0, 0}, &sent.emplace_back()), "ok");
    EXPECT_GE(BytesOf(sent.back()), 10'000 * sizeof(transport::ProfileRecord));
  }
  const auto expect_empty = [](const UniqueFd& memory) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (BytesOf(memory) != 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(BytesOf(memory), 0u);
    EXPECT_FALSE(transport::ReadProfile(memory).ok()) << "zeros are no profile";
  };
  expect_empty(sent[0]);
  EXPECT_TRUE(transport::ReadProfile(sent[1]).ok());
  session.reset();
  expect_empty(sent[1]);
  ExpectAsBefore();
}

TEST_F(Profiles, OfAllClientsTogetherAreLimited) {
  std::vector<std::unique_ptr<HostileSession>> sessions;
  const auto start = [&] {
    sessions.push_back(std::make_unique<HostileSession>(socket()));
    return Ask(*sessions.back(), {RequestKind::kStartProfile, 0, transport::kMaxProfileCommands, 0});
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(start(), "ok");
  EXPECT_EQ(Ask(*sessions.back(), {RequestKind::kStartProfile, 0, transport::kMaxProfileCommands, 0}), "ok")
      << "it begins anew";
  EXPECT_THAT(start(), HasSubstr("that clients may keep"));
  sessions.clear();
  EXPECT_EQ(start(), "ok");
  sessions.clear();
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
