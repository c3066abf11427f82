// Commands of unknown kinds, of wrong sizes, truncated, or followed by extra bytes.
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Lengths = Isolation;

constexpr wire::Handle kBuffer = {1, 1};

template <typename Command>
std::vector<std::byte> BytesOf(const Command& command) {
  const auto bytes = std::as_bytes(std::span(&command, 1));
  return {bytes.begin(), bytes.end()};
}

// One command of each kind, all valid after OpenWithBuffer.
std::vector<std::vector<std::byte>> RightCommands() {
  const std::vector<std::byte> payload(21);
  const View a = TensorView(kBuffer, {2, 3}),
             b = TensorView(kBuffer, {2, 3}, ops::DType::kFloat32, 1, {3, 1});
  const View inputs[] = {a, b, Immediate(1)};
  const ops::Number number = ops::Number::Integer(1);
  const View softmax[] = {a};
  return {BytesOf(Nop()),
          BytesOf(Allocate({2, 1}, 64)),
          BytesOf(Upload(kBuffer, 0, {0, 0, 0}, 64)),
          UploadInline(kBuffer, 0, payload),
          BytesOf(Download(kBuffer, 0, {0, 0, 0}, 64)),
          BytesOf(Copy(kBuffer, 0, kBuffer, 128, 64)),
          BytesOf(CreateQueue(1)),
          BytesOf(Timestamp(0)),
          BytesOf(Wait(0, 0)),
          BytesOf(ClearError(0)),
          BytesOf(Reserve(1 << 20)),
          BytesOf(Free(kBuffer)),
          DefineKernel(2, SampleKernel()),
          BytesOf(ForgetKernel(1)),
          PrepareKernel(1, {16}, {16, 1, 16}),
          Execute(ops::RowOf("add.Tensor"), ops::DType::kFloat32, {&a, 1}, inputs),
          Execute(ops::RowOf("_softmax"), ops::DType::kFloat32, {&a, 1}, softmax, {&number, 1})};
}

void SetSize(std::vector<std::byte>& command, size_t bytes) {
  const auto size = static_cast<uint32_t>(bytes);
  std::memcpy(command.data(), &size, sizeof(size));
}

std::unique_ptr<HostileSession> OpenWithBuffer(const std::string& socket) {
  auto session = std::make_unique<HostileSession>(socket);
  session->Put(Allocate(kBuffer, 256));
  session->Put(DefineKernel(1, SampleKernel()));
  EXPECT_TRUE(session->Settle().ok());
  return session;
}

TEST_F(Lengths, OfRightCommandsAreAccepted) {
  for (const auto& command : RightCommands()) {
    auto session = OpenWithBuffer(socket());
    session->Put(command);
    session->Put(Nop());  // that is waited for, on queue 0
    EXPECT_TRUE(session->Settle().ok()) << "kind " << static_cast<int>(command[4]);
  }
}

TEST_F(Lengths, OfTablesOfQueuesAndTimestampsAreLimits) {
  const auto stamp = [](uint32_t queue, uint32_t slot) {
    constexpr auto kKind = wire::CommandKind::kTimestamp;
    return wire::TimestampCommand{wire::Header(kKind, queue, sizeof(wire::TimestampCommand)), slot, 0};
  };
  auto session = OpenWithBuffer(socket());
  session->Put(stamp(0, wire::kMaxTimestamps - 1));
  EXPECT_TRUE(session->Settle().ok());
  session->Put(stamp(0, wire::kMaxTimestamps));
  EXPECT_THAT(session->Fate(), ::testing::HasSubstr("a timestamp's slot is out of range"));
  session = OpenWithBuffer(socket());
  session->Put(stamp(wire::kMaxQueues, 0));
  EXPECT_THAT(session->Fate(), ::testing::HasSubstr("queue"));
  session.reset();
  innocent_.ExpectUnharmed();
  ExpectAsBefore();
}

TEST_F(Lengths, OfCommandsThatAreCutOffOrTrailBytesCloseTheSession) {
  int breaches = 0;
  for (const auto& right : RightCommands()) {
    for (size_t size = 8; size <= right.size() + 64; size += 8) {
      if (size == right.size()) continue;
      std::vector<std::byte> wrong = right;
      wrong.resize(size);
      SetSize(wrong, size);
      auto session = OpenWithBuffer(socket());
      session->Put(wrong);
      EXPECT_THAT(session->Fate(), Not(StartsWith("still open")))
          << "kind " << static_cast<int>(right[4]) << ", " << size << " bytes for " << right.size();
      ++breaches;
    }
  }
  EXPECT_GT(breaches, 100);
  ExpectAsBefore();
}

TEST_F(Lengths, ThatLieAboutThemselvesCloseTheSession) {
  const std::vector<std::pair<uint32_t, const char*>> lies = {
      {0, "a command of 0 bytes"},
      {4, "a command of 4 bytes"},
      {7, "a command of 7 bytes"},
      {9, "a command of 9 bytes"},
      {16, "published before it was whole"},
      {wire::kMaxCommandBytes, "published before it was whole"},
      {wire::kMaxCommandBytes + 8, "a command of 65544 bytes"},
      {1u << 20, "a command of 1048576 bytes"},
      {1u << 31, "a command of"},
      {~7u, "a command of"},
      {~0u, "a command of"}};
  for (const auto& [size, reason] : lies) {
    auto session = OpenWithBuffer(socket());
    std::vector<std::byte> lying = BytesOf(Nop());
    SetSize(lying, size);
    session->Put(lying);
    EXPECT_THAT(session->Fate(), HasSubstr(reason)) << size;
  }
  // Lengths inside a command.
  for (const uint32_t inside : {0u, 1u, 8u, 22u, 24u, 25u, 2048u, 2049u, 1u << 31, ~0u}) {
    auto session = OpenWithBuffer(socket());
    std::vector<std::byte> upload = UploadInline(kBuffer, 0, std::vector<std::byte>(16));
    std::memcpy(upload.data() + offsetof(wire::UploadInlineCommand, bytes), &inside, sizeof(inside));
    session->Put(upload);
    EXPECT_THAT(session->Fate(), HasSubstr("length does not fit")) << inside;
  }
  ExpectAsBefore();
}

TEST_F(Lengths, OperandCountsRanksAndKindsBeyondTheirLimitsCloseTheSession) {
  const View a = TensorView(kBuffer, {2, 3});
  const std::vector<std::byte> right = Execute(ops::RowOf("neg"), ops::DType::kFloat32, {&a, 1}, {&a, 1});
  constexpr size_t kFirstOperand = sizeof(wire::ExecuteCommand);
  const std::vector<size_t> counts = {offsetof(wire::ExecuteCommand, outputs),
                                      offsetof(wire::ExecuteCommand, inputs),
                                      offsetof(wire::ExecuteCommand, reserved),
                                      offsetof(wire::ExecuteCommand, compute),
                                      kFirstOperand + offsetof(wire::OperandHeader, kind),
                                      kFirstOperand + offsetof(wire::OperandHeader, dtype),
                                      kFirstOperand + offsetof(wire::OperandHeader, rank),
                                      kFirstOperand + offsetof(wire::OperandHeader, flags)};
  for (const size_t at : counts) {
    for (const int value : {9, 100, 200, 255}) {
      auto session = OpenWithBuffer(socket());
      std::vector<std::byte> wrong = right;
      wrong[at] = static_cast<std::byte>(value);
      session->Put(wrong);
      if (at == offsetof(wire::ExecuteCommand, compute) && value == 9) continue;  // a dtype that exists
      if (at == kFirstOperand + offsetof(wire::OperandHeader, dtype) && value == 9) continue;
      EXPECT_THAT(session->Fate(), Not(StartsWith("still open"))) << "byte " << at << " is " << value;
    }
  }
  ExpectAsBefore();
}

TEST_F(Lengths, OfListsThatDoNotFitTheirOperandsCloseTheSession) {
  const View a = TensorView(kBuffer, {2, 3});
  const std::vector<View> tensors(2, a);
  const ops::Number dim = ops::Number::Integer(0);
  for (const uint16_t length : {0, 1, 3, 1024, 65535}) {
    auto session = OpenWithBuffer(socket());
    session->Put(Execute(ops::RowOf("cat"), ops::DType::kFloat32, {&a, 1}, tensors, {&dim, 1}, {&length, 1}));
    EXPECT_THAT(session->Fate(), HasSubstr("lists do not fit")) << length;
  }
  const std::vector<View> many(1025, a);
  const auto count = static_cast<uint16_t>(many.size());
  auto session = OpenWithBuffer(socket());
  session->Put(Execute(ops::RowOf("cat"), ops::DType::kFloat32, {&a, 1}, many, {&dim, 1}, {&count, 1}));
  EXPECT_THAT(session->Fate(), Not(StartsWith("still open")));
  ExpectAsBefore();
}

TEST_F(Lengths, OfEveryUnknownKindCloseTheSession) {
  for (int kind = 0; kind < 256; ++kind) {
    if (kind >= 1 && kind <= static_cast<int>(wire::CommandKind::kCopyFrom)) continue;
    auto session = OpenWithBuffer(socket());
    session->Put(wire::NopCommand{{sizeof(wire::NopCommand), static_cast<wire::CommandKind>(kind), 0, 0}});
    EXPECT_THAT(session->Fate(), HasSubstr("unknown kind " + std::to_string(kind)));
  }
  ExpectAsBefore();
}

TEST_F(Lengths, OfTheRingThatAreNoPositionsInItCloseTheSession) {
  using Tail = std::function<uint64_t(const HostileSession&)>;
  const std::vector<std::pair<Tail, const char*>> tails = {
      {[](const HostileSession& s) { return s.tail() + 1; }, "tail is outside the ring"},
      {[](const HostileSession& s) { return s.tail() + 4; }, "tail is outside the ring"},
      {[](const HostileSession& s) { return s.tail() - 8; }, "tail is outside the ring"},
      {[](const HostileSession& s) { return s.tail() + transport::kRingBytes + 8; }, "tail is outside"},
      {[](const HostileSession&) { return uint64_t{0}; }, "tail is outside the ring"},
      {[](const HostileSession&) { return ~uint64_t{7}; }, "tail is outside the ring"},
      {[](const HostileSession&) { return uint64_t{1} << 63; }, "tail is outside the ring"},
      {[](const HostileSession& s) { return s.tail() + 64; },
       "a command of 0 bytes"},  // nothing was put there
      {[](const HostileSession& s) { return s.tail() + transport::kRingBytes; }, "a command of 0 bytes"}};
  for (size_t i = 0; i < tails.size(); ++i) {
    HostileSession session(socket());
    session.Put(Nop());
    ASSERT_TRUE(session.Settle().ok());
    session.PublishUpTo(tails[i].first(session));
    ASSERT_TRUE(e2e::Within(std::chrono::seconds(10), [&] { return session.closed(); })) << i;
    EXPECT_THAT(transport::GetText(session.completion().reason), HasSubstr(tails[i].second)) << i;
  }
  ExpectAsBefore();
}

TEST_F(Lengths, OfGreetingsAndLaterMessagesAreChecked) {
  if (IsRemote())
    GTEST_SKIP() << "xpud-connect is the client's own; the gateway's greeting is tested in remote_test";
  for (const size_t bytes : {size_t{1}, sizeof(transport::Hello) - 1, sizeof(transport::Hello) + 1,
                             size_t{4096}, size_t{100'000}}) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket().c_str(), socket().size());
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const transport::Hello hello = {transport::kHelloMagic, wire::kOldestVersion, wire::kNewestVersion, {}};
    std::vector<std::byte> message(bytes);
    std::memcpy(message.data(), &hello, std::min(bytes, sizeof(hello)));
    ASSERT_TRUE(transport::SendMessage(fd.get(), message).ok());
    // The connection is closed, with or without a message.
    transport::Welcome answer = {};
    ssize_t got;
    while ((got = recv(fd.get(), &answer, sizeof(answer), 0)) > 0) EXPECT_EQ(answer.version, 0) << bytes;
    EXPECT_EQ(got, 0) << bytes;
  }
  for (const size_t bytes : {size_t{1}, size_t{23}, size_t{25}, size_t{100'000}}) {
    HostileSession session(socket());
    ASSERT_TRUE(transport::SendMessage(session.socket(), std::vector<std::byte>(bytes)).ok());
    EXPECT_TRUE(e2e::Within(std::chrono::seconds(10), [&] { return session.closed(); })) << bytes;
  }
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
