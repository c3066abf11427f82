// Handles that are forged, stale, of another session, or beyond any table.
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/e2e/scribble.h"

namespace xpud::isolation {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBytes = 4096;
constexpr wire::Handle kOwn = {1, 1}, kStale = {2, 1}, kReborn = {2, 2}, kForeign = {40, 1};

// Handles that name no buffer of HandleSession.
constexpr wire::Handle kBad[] = {{0, 0},
                                 {0, 1},
                                 {1, 0},
                                 {1, 2},
                                 {1, ~0u},
                                 kStale,
                                 kForeign,
                                 {3, 1},
                                 {wire::kMaxBuffers, 1},
                                 {1u << 31, 1},
                                 {~0u, 1},
                                 {~0u, ~0u},
                                 {wire::kMaxBuffers - 1, 1}};

class Handles : public Isolation {
 protected:
  // Opens a session with a buffer, and an id whose first buffer was freed.
  std::unique_ptr<HostileSession> Open() {
    auto session = std::make_unique<HostileSession>(socket());
    session->Put(Allocate(kOwn, kBytes));
    session->Put(Allocate(kStale, kBytes));
    session->Put(Free(kStale));
    session->Put(Allocate(kReborn, kBytes));
    for (const wire::Handle buffer : {kOwn, kReborn}) {
      for (uint64_t at = 0; at < kBytes; at += 1024)
        session->Put(UploadInline(buffer, at, std::span(contents_).subspan(at, 1024)));
    }
    EXPECT_TRUE(session->Settle().ok());
    return session;
  }
  void ExpectUntouched(HostileSession& session, wire::Handle buffer, const char* what) {
    session.Put(Download(buffer, 0, {0, 0, 0}, kBytes));
    ASSERT_TRUE(session.Settle().ok());
    EXPECT_TRUE(e2e::Same(session.staging().first(kBytes), contents_)) << what;
  }

  const std::vector<std::byte> contents_ = e2e::Scribbled(kBytes, 4);
};

std::vector<std::pair<const char*, std::vector<std::byte>>> CommandsThatUse(wire::Handle bad) {
  const auto bytes_of = [](const auto& command) {
    const auto bytes = std::as_bytes(std::span(&command, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  const std::vector<std::byte> payload(64, std::byte{0xee});
  const View own = TensorView(kOwn, {16}), forged = TensorView(bad, {16});
  const ops::Row& neg = ops::RowOf("neg");
  return {{"upload", bytes_of(Upload(bad, 0, {0, 0, 0}, 64))},
          {"inline upload", UploadInline(bad, 0, payload)},
          {"download", bytes_of(Download(bad, 0, {0, 0, 0}, 64))},
          {"copy from it", bytes_of(Copy(bad, 0, kOwn, 0, 64))},
          {"copy to it", bytes_of(Copy(kOwn, 0, bad, 0, 64))},
          {"op that reads it", Execute(neg, ops::DType::kFloat32, {&own, 1}, {&forged, 1})},
          {"op that writes it", Execute(neg, ops::DType::kFloat32, {&forged, 1}, {&own, 1})}};
}

TEST_F(Handles, ThatNameNothingOfTheSessionAreRefusedAndNothingIsTouched) {
  auto other = std::make_unique<HostileSession>(socket(), "other");
  for (uint32_t id = 1; id <= kForeign.id; ++id) other->Put(Allocate({id, 1}, kBytes));
  for (uint64_t at = 0; at < kBytes; at += 1024)
    other->Put(UploadInline(kForeign, at, std::span(contents_).subspan(at, 1024)));
  ASSERT_TRUE(other->Settle().ok());
  auto session = Open();
  std::fill(session->staging().begin(), session->staging().end(), std::byte{0xdd});
  for (const wire::Handle bad : kBad) {
    for (const auto& [what, command] : CommandsThatUse(bad)) {
      session->Put(command);
      EXPECT_THAT(TextOf(session->Settle()), HasSubstr("buffer that does not exist"))
          << what << " " << bad.id << "/" << bad.generation;
    }
  }
  EXPECT_EQ(session->staging()[0], std::byte{0xdd}) << "something was downloaded";
  ExpectUntouched(*session, kOwn, "its own buffer");
  ExpectUntouched(*session, kReborn, "the buffer that took the id over");
  ExpectUntouched(*other, kForeign, "another session's buffer");
  session.reset();
  other.reset();
  ExpectAsBefore();
}

TEST_F(Handles, AreFreedOnceAndOnlyByTheirSession) {
  for (const wire::Handle bad : kBad) {
    auto session = Open();
    session->Put(Free(bad));
    EXPECT_THAT(session->Fate(), HasSubstr("freed that does not exist")) << bad.id << "/" << bad.generation;
  }
  auto session = Open();
  session->Put(Free(kOwn));
  session->Put(Free(kOwn));
  EXPECT_THAT(session->Fate(), HasSubstr("freed that does not exist"));
  ExpectAsBefore();
}

TEST_F(Handles, AreTakenInOrderAndWithGrowingGenerations) {
  for (const wire::Handle bad : std::initializer_list<wire::Handle>{{0, 1},
                                                                    {1, 1},
                                                                    {1, 2},
                                                                    {2, 1},
                                                                    {2, 2},
                                                                    {3, 0},
                                                                    {4, 1},
                                                                    {wire::kMaxBuffers, 1},
                                                                    {1u << 31, 1},
                                                                    {~0u, 1}}) {
    auto session = Open();
    session->Put(Allocate(bad, kBytes));
    EXPECT_THAT(session->Fate(), HasSubstr("id is in use or out of order"))
        << bad.id << "/" << bad.generation;
  }
  auto session = Open();
  session->Put(Free(kReborn));
  session->Put(Allocate({2, ~0u}, kBytes));  // the last generation there is
  session->Put(Free({2, ~0u}));
  ASSERT_TRUE(session->Settle().ok());
  session->Put(Allocate({2, 0}, kBytes));  // the generation must not wrap
  EXPECT_THAT(session->Fate(), HasSubstr("generation does not grow"));
  ExpectAsBefore();
}

TEST_F(Handles, OfQueuesEventsDevicesAndHostMemoryAreChecked) {
  const auto on_queue = [](uint16_t queue) {
    return wire::NopCommand{{sizeof(wire::NopCommand), wire::CommandKind::kNop, 0, queue}};
  };
  const std::vector<std::pair<std::function<void(HostileSession&)>, const char*>> breaches = {
      {[&](HostileSession& s) { s.Put(on_queue(1)); }, "queue does not exist"},
      {[&](HostileSession& s) { s.Put(on_queue(63)); }, "queue does not exist"},
      {[&](HostileSession& s) { s.Put(on_queue(64)); }, "ids below 64"},
      {[&](HostileSession& s) { s.Put(on_queue(65535)); }, "ids below 64"},
      {[](HostileSession& s) { s.Put(CreateQueue(0)); }, "created twice"},
      {[](HostileSession& s) { s.Put(CreateQueue(1)), s.Put(CreateQueue(1)); }, "created twice"},
      {[](HostileSession& s) { s.Put(Wait(0, 1, 0, 15)); }, "device that the session has not opened"},
      {[](HostileSession& s) { s.Put(Wait(0, 1, 0, ~0u)); }, "device that the session has not opened"},
      {[](HostileSession& s) { s.Put(DestroyQueue(0)); }, "default queue"},
      {[](HostileSession& s) { s.Put(DestroyQueue(9)); }, "queue does not exist"},
      {[](HostileSession& s) { s.Put(Wait(1, 0)); }, "queue that does not exist"},
      {[](HostileSession& s) { s.Put(Wait(64, 0)); }, "queue that does not exist"},
      {[](HostileSession& s) { s.Put(Wait(~0u, 0)); }, "queue that does not exist"},
      {[](HostileSession& s) { s.Put(Wait(0, ~uint64_t{0})); }, "not an earlier one"},
      {[](HostileSession& s) { s.Put(Wait(0, s.sequence() + 1)); }, "not an earlier one"},
      {[](HostileSession& s) { s.Put(Timestamp(wire::kMaxTimestamps)); }, "slot is out of range"},
      {[](HostileSession& s) { s.Put(Timestamp(~0u)); }, "slot is out of range"},
      {[](HostileSession& s) { s.Put(ClearError(1)); }, "never raised"},
      {[](HostileSession& s) { s.Put(ClearError(~0u)); }, "never raised"},
      {[](HostileSession& s) { s.Put(ReleaseMemory(0)); }, "not shared"},
      {[](HostileSession& s) { s.Put(ReleaseMemory(~0u)); }, "not shared"},
      {[](HostileSession& s) { s.Put(Upload(kOwn, 0, {0, ~0u, 0}, 64)); }, "not shared"},
      {[](HostileSession& s) { s.Put(Download(kOwn, 0, {0, 1, 0}, 64)); }, "not shared"},
  };
  for (size_t i = 0; i < breaches.size(); ++i) {
    auto session = Open();
    breaches[i].first(*session);
    EXPECT_THAT(session->Fate(), HasSubstr(breaches[i].second)) << "breach " << i;
  }
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
