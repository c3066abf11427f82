#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/transport/handshake.h"
#include "proto/transport/host_memory.h"
#include "proto/transport/requests.h"
#include "proto/transport/shm_client.h"
#include "proto/transport/shm_server.h"
#include "proto/wire/decode.h"
#include "proto/wire/encode.h"

namespace xpud::transport {
namespace {

using ::testing::HasSubstr;

struct Pair {
  explicit Pair(ShmClient::Waits waits = ShmClient::Waits::kForDaemon) {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    daemon_socket.Reset(sockets[1]);
    socket = std::make_shared<SessionSocket>(UniqueFd(sockets[0]));
    DeviceFds fds;
    server = std::move(*ShmServer::Create(fds));
    ring_fd.Reset(dup(fds.ring.get()));
    completion_fd.Reset(dup(fds.completion.get()));
    client = std::move(*ShmClient::Create(socket, std::move(fds), kStagingBytes, waits));
  }
  void Send(uint64_t bytes_value) {
    std::byte* out;
    while ((out = client->Reserve(sizeof(wire::AllocateCommand))) == nullptr) std::this_thread::yield();
    const wire::AllocateCommand command = {
        wire::Header(wire::CommandKind::kAllocate, 0, sizeof(command)), {1, 1}, bytes_value};
    std::memcpy(out, &command, sizeof(command));
    client->Commit(sizeof(command));
    client->Publish();
  }
  ControlPage& HostileControl() {
    void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd.get(), 0);
    return *static_cast<ControlPage*>(page);
  }
  UniqueFd daemon_socket, ring_fd, completion_fd;
  std::shared_ptr<SessionSocket> socket;
  std::unique_ptr<ShmServer> server;
  std::unique_ptr<ShmClient> client;
};

TEST(ShmTransport, CommandsArriveInOrderWhileTheRingWrapsManyTimes) {
  Pair pair;
  constexpr uint64_t kCommands = 200000;  // 24 bytes each: about 4.6 rings
  std::thread sender([&] {
    for (uint64_t i = 1; i <= kCommands; ++i) pair.Send(i);
  });
  uint64_t expected = 1;
  bool in_order = true;
  while (expected <= kCommands) {
    auto batch = pair.server->Receive();
    ASSERT_TRUE(batch.ok()) << batch.status();
    for (size_t at = 0; at < batch->size(); at += sizeof(wire::AllocateCommand), ++expected) {
      wire::AllocateCommand command;
      std::memcpy(&command, batch->data() + at, sizeof(command));
      in_order &= command.bytes == expected;
    }
  }
  sender.join();
  EXPECT_TRUE(in_order);
}

constexpr size_t kSent = sizeof(wire::AllocateCommand);

TEST(ShmTransport, TheDaemonKnowsWhenCommandsWerePublishedWhileItWantsTo) {
  Pair pair;
  pair.Send(1);
  ASSERT_TRUE(pair.server->Receive().ok());
  EXPECT_EQ(pair.server->PublishedNs(0), std::nullopt);
  pair.server->WantPublishTimes(true);
  pair.Send(2);  // some before it may have been published without a time
  std::array<uint64_t, 5> before;
  for (uint64_t& time : before) {
    time = NowNs();
    pair.Send(3);
  }
  const uint64_t after = NowNs();
  ASSERT_TRUE(pair.server->Receive().ok());
  EXPECT_EQ(pair.server->PublishedNs(0), std::nullopt);
  for (size_t i = 0; i < before.size(); ++i) {
    const std::optional<uint64_t> time = pair.server->PublishedNs((i + 1) * kSent);
    ASSERT_TRUE(time.has_value()) << i;
    EXPECT_GE(*time, before[i]);
    EXPECT_LE(*time, i + 1 < before.size() ? before[i + 1] : after);
  }
  pair.server->WantPublishTimes(false);
  pair.Send(4);
  ASSERT_TRUE(pair.server->Receive().ok());
  EXPECT_EQ(pair.server->PublishedNs(0), std::nullopt);
}

TEST(ShmTransport, PublishTimesForWhichThereWasNoRoomAreNotKnown) {
  constexpr size_t kCommands = 2 * PublishTimes::kKept;
  Pair pair;
  pair.server->WantPublishTimes(true);
  for (size_t i = 0; i < kCommands; ++i) pair.Send(i);
  ASSERT_TRUE(pair.server->Receive().ok());
  size_t known = 0;
  uint64_t last = 0;
  for (size_t i = 0; i < kCommands; ++i) {
    const std::optional<uint64_t> time = pair.server->PublishedNs(i * kSent);
    EXPECT_EQ(time.has_value(), known != 0 || time.has_value()) << "those at the end are known";
    if (!time) continue;
    EXPECT_GE(*time, last);
    last = *time;
    ++known;
  }
  EXPECT_GE(known, PublishTimes::kKept - 2);
  EXPECT_LE(known, PublishTimes::kKept);
}

TEST(ShmTransport, HostilePublishTimesLieBetweenTheWishAndNow) {
  Pair pair;
  PublishTimes& published = pair.HostileControl().published;
  const uint64_t wanted = NowNs();
  pair.server->WantPublishTimes(true);
  for (const uint64_t ns : {uint64_t{0}, uint64_t{5}, UINT64_MAX, wanted, uint64_t{1}}) {
    const uint64_t number = published.count.load();
    pair.Send(1);
    published.times[number % PublishTimes::kKept].ns = ns;
    ASSERT_TRUE(pair.server->Receive().ok());
    if (const std::optional<uint64_t> time = pair.server->PublishedNs(0)) {
      EXPECT_GE(*time, wanted);
      EXPECT_LE(*time, NowNs());
    }
  }
  for (const uint64_t count : {UINT64_MAX, uint64_t{0}, uint64_t{1} << 40}) {
    published.count = count;
    for (PublishTimes::Time& time : published.times) time.tail = count;
    pair.Send(1);
    ASSERT_TRUE(pair.server->Receive().ok());
    if (const std::optional<uint64_t> time = pair.server->PublishedNs(0)) EXPECT_LE(*time, NowNs());
  }
}

TEST(ShmTransport, AWaitingClientWakesWhenItsCommandCompletes) {
  Pair pair;
  std::thread daemon([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // long enough for the client to sleep
    std::atomic_ref<uint64_t>(*pair.server->CompletedWord(0)).store(7, std::memory_order_release);
    pair.server->WakeClient();
  });
  EXPECT_TRUE(pair.client->Wait([&] { return pair.client->Completed(0) >= 7; }, {}).ok());
  daemon.join();
}

TEST(ShmTransport, AnAwaitedMilestoneIsReadBackAndAnyOtherWordIsNone) {
  for (const Milestone& milestone : {Milestone{0, 0}, Milestone{63, 1}, Milestone{7, ~uint64_t{0} >> 8}}) {
    const auto found = AwaitedMilestone(WaitsFor(milestone));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->queue, milestone.queue);
    EXPECT_EQ(found->sequence, milestone.sequence);
  }
  for (const uint64_t word :
       {uint64_t{0}, kAnyProgress, uint64_t{256}, uint64_t{wire::kMaxQueues + 2}, ~uint64_t{0}})
    EXPECT_FALSE(AwaitedMilestone(word).has_value()) << word;
}

// A client that sleeps until the end of a command is not woken by earlier commands.
TEST(ShmTransport, ProgressBeforeAMilestoneDoesNotWake) {
  constexpr uint64_t kCommands = 200;
  Pair pair;
  std::atomic<uint64_t> looks{0};
  std::thread client([&] {
    const auto done = [&] {
      ++looks;
      return pair.client->Completed(1) >= kCommands;
    };
    EXPECT_TRUE(pair.client->Listen(done, {}, {ClientTransport::kForever, Milestone{1, kCommands}}).ok());
  });
  for (uint64_t seen = ~uint64_t{0}; seen != looks.load();) {  // until it sleeps
    seen = looks.load();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const uint64_t before = looks.load();
  for (uint64_t sequence = 1; sequence <= kCommands; ++sequence) {
    std::atomic_ref<uint64_t>(*pair.server->CompletedWord(1)).store(sequence, std::memory_order_release);
    pair.server->WakeClient();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  client.join();
  EXPECT_LT(looks.load() - before, kCommands / 2);
}

TEST(ShmTransport, AnErrorBeforeAMilestoneWakes) {
  Pair pair;
  std::thread daemon([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pair.server->RaiseError(1, 1, absl::OutOfRangeError("index 9"));
    pair.server->WakeClient();
  });
  const auto done = [&] { return pair.client->Errors(1) != 0; };
  EXPECT_TRUE(pair.client->Listen(done, {}, {ClientTransport::kForever, Milestone{1, 3}}).ok());
  daemon.join();
}

TEST(ShmTransport, WhereTwoWaitBothAreWokenByAnyProgress) {
  Pair pair;
  std::thread first([&] { EXPECT_TRUE(pair.client->Await({0, 1}, {}).ok()); });
  std::thread second([&] { EXPECT_TRUE(pair.client->Await({1, 1}, {}).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (const uint32_t queue : {0u, 1u}) {
    std::atomic_ref<uint64_t>(*pair.server->CompletedWord(queue)).store(1, std::memory_order_release);
    pair.server->WakeClient();
  }
  first.join();
  second.join();
}

TEST(ShmTransport, TheDaemonHearsThatSomebodyWaitsForAnAnswer) {
  Pair pair;
  EXPECT_EQ(pair.server->TakeWaitRequest(), 0);
  pair.client->RequestAnswer(kAnyProgress);
  ASSERT_TRUE(pair.server->Receive().ok());
  EXPECT_EQ(pair.server->TakeWaitRequest(), kAnyProgress);
  EXPECT_EQ(pair.server->TakeWaitRequest(), 0);
  int looks = 0;
  const auto on_second_look = [&] { return ++looks % 2 == 0; };
  EXPECT_TRUE(pair.client->Listen(on_second_look, {}, {}).ok());
  EXPECT_EQ(pair.server->TakeWaitRequest(), 0);
  const auto until = ClientTransport::Clock::now() + std::chrono::milliseconds(2);
  EXPECT_TRUE(pair.client->Listen([] { return false; }, {}, {until, {}}).ok());
  EXPECT_GE(ClientTransport::Clock::now(), until);
  EXPECT_TRUE(pair.client->Wait(on_second_look, {}).ok());
  EXPECT_EQ(pair.server->TakeWaitRequest(), kAnyProgress);
}

TEST(ShmTransport, TheDaemonHearsWhatIsWaitedForAndOfTwoThingsThatItIsAnyProgress) {
  Pair pair;
  const uint64_t one = WaitsFor({0, 4}), other = WaitsFor({1, 9});
  pair.client->RequestAnswer(one);
  pair.client->RequestAnswer(one);
  EXPECT_EQ(pair.server->TakeWaitRequest(), one);
  pair.client->RequestAnswer(other);
  EXPECT_EQ(pair.server->TakeWaitRequest(), other);
  pair.client->RequestAnswer(one);
  pair.client->RequestAnswer(other);
  EXPECT_EQ(pair.server->TakeWaitRequest(), kAnyProgress);
  EXPECT_EQ(pair.server->TakeWaitRequest(), 0);
}

// Without LookAgain the client would check after 50 ms.
TEST(ShmTransport, LookAgainWakesASleepingClient) {
  Pair pair;
  std::atomic<int> looks{0};
  std::atomic<bool> ends{false};
  std::thread sleeper([&] {
    const auto done = [&] { return ++looks, ends.load(); };
    EXPECT_TRUE(pair.client->Listen(done, {}, {ClientTransport::kForever, Milestone{0, 1}}).ok());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than the spin of 50 us
  const int before = looks;
  for (int i = 0; i < 100; ++i) {
    pair.client->LookAgain();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(looks - before, 50);
  ends = true;
  sleeper.join();
}

TEST(ShmTransport, TheDoorbellRingsOnlyWhileTheDaemonSleeps) {
  Pair pair;
  pair.server->SayAsleep();
  pair.server->BarrierBeforeSleep();
  ASSERT_FALSE(pair.server->HasCommands());
  pair.Send(1);
  eventfd_t rings = 0;
  EXPECT_EQ(read(pair.server->doorbell(), &rings, sizeof(rings)), static_cast<ssize_t>(sizeof(rings)));
  EXPECT_TRUE(pair.server->HasCommands());
  pair.server->Awake();
  pair.Send(2);
  EXPECT_EQ(read(pair.server->doorbell(), &rings, sizeof(rings)), -1);
}

TEST(ShmTransport, AQuestionWakesARelayAndNotADaemonThatHasNothingToDo) {
  for (const auto waits : {ShmClient::Waits::kForRelay, ShmClient::Waits::kForDaemon}) {
    Pair pair(waits);
    pair.server->SayAsleep();
    pair.server->BarrierBeforeSleep();
    ASSERT_EQ(pair.server->TakeWaitRequest(), 0u);
    pair.client->RequestAnswer(kAnyProgress);
    eventfd_t rings = 0;
    const bool rang = read(pair.server->doorbell(), &rings, sizeof(rings)) == sizeof(rings);
    EXPECT_EQ(rang, waits == ShmClient::Waits::kForRelay);
  }
}

TEST(ShmTransport, ARelayIsToldOnceThatSomebodyPollsBesideOneWhoWaits) {
  Pair pair(ShmClient::Waits::kForRelay);
  pair.client->NotePolling();
  EXPECT_EQ(pair.server->TakeWaitRequest(), 0u);  // no request is left
  std::atomic<bool> ends{false};
  const auto interrupt = [&] { return ends ? absl::CancelledError() : absl::OkStatus(); };
  std::thread waiter([&] { EXPECT_FALSE(pair.client->Await({0, 1}, interrupt).ok()); });
  while (pair.server->TakeWaitRequest() != WaitsFor({0, 1})) std::this_thread::yield();
  uint64_t question = 0;
  while (question == 0) {
    pair.client->NotePolling();
    question = pair.server->TakeWaitRequest();
  }
  EXPECT_EQ(question, kAnyProgress);
  pair.client->NotePolling();
  EXPECT_EQ(pair.server->TakeWaitRequest(), 0u);
  ends = true;
  waiter.join();
}

TEST(ShmTransport, ErrorsCarryCodeAndMessage) {
  Pair pair;
  EXPECT_EQ(pair.client->Errors(2), 0u);
  pair.server->RaiseError(2, 11, absl::OutOfRangeError("index 9 is out of range"));
  EXPECT_EQ(pair.client->Errors(2), 1u);
  EXPECT_EQ(pair.client->LastError(2), absl::OutOfRangeError("index 9 is out of range"));
}

TEST(ShmTransport, ADeadDaemonEndsAWait) {
  Pair pair;
  pair.daemon_socket.Reset();
  const absl::Status status = pair.client->Wait([] { return false; }, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST(ShmTransport, AClosedSessionSaysWhy) {
  Pair pair;
  pair.server->Close("a command of 4 bytes", kSessionClosed);
  EXPECT_THAT(pair.client->Wait([] { return false; }, {}).message(), HasSubstr("a command of 4 bytes"));
}

TEST(ShmTransport, StagingIsEmptiedOnlyAfterTheClientCanSeeThatTheSessionEnded) {
  Pair pair;
  pair.server->staging().bytes[5] = std::byte{7};
  EXPECT_EQ(pair.client->staging()[5], std::byte{7});
  EXPECT_TRUE(pair.client->CheckOpen().ok());
  std::atomic<bool> saw_zero_while_open{false}, ready{false};
  std::thread client([&] {
    for (;;) {
      const std::byte seen = *const_cast<volatile std::byte*>(&pair.client->staging()[5]);
      const bool open = pair.client->CheckOpen().ok();
      if (open && seen != std::byte{7}) saw_zero_while_open = true;
      ready = true;
      if (seen == std::byte{0}) return;
    }
  });
  while (!ready) std::this_thread::yield();
  pair.server.reset();
  client.join();
  EXPECT_FALSE(saw_zero_while_open);
  EXPECT_FALSE(pair.client->CheckOpen().ok());
}

TEST(ShmTransport, CompletionsAreEmptiedAndTheClientCanSeeThatTheSessionEnded) {
  Pair pair;
  for (uint32_t queue = 0; queue < wire::kMaxQueues; ++queue) {
    *pair.server->CompletedWord(queue) = 7;
    pair.server->RaiseError(queue, 7, absl::OutOfRangeError("an index"));
  }
  *pair.server->TimestampWord(wire::kMaxTimestamps - 1) = 9;
  constexpr uint32_t kLast = wire::kMaxQueues - 1;
  EXPECT_EQ(pair.client->Completed(kLast), 7u);
  pair.server->Close("a command of 4 bytes", kSessionClosed);
  pair.server.reset();
  struct stat info;
  ASSERT_EQ(fstat(pair.completion_fd.get(), &info), 0);
  EXPECT_EQ(info.st_blocks * 512, static_cast<blkcnt_t>(kPageBytes));
  EXPECT_EQ(pair.client->Completed(kLast), 0u);
  EXPECT_EQ(pair.client->Timestamp(wire::kMaxTimestamps - 1), 0u);
  EXPECT_THAT(pair.client->CheckOpen().message(), HasSubstr("a command of 4 bytes"));
  EXPECT_THAT(pair.client->Await({kLast, 7}, {}).message(), HasSubstr("a command of 4 bytes"));
}

TEST(ShmTransport, AnInterruptEndsAWait) {
  Pair pair;
  const auto status = pair.client->Wait([] { return false; }, [] { return absl::CancelledError("Ctrl-C"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST(ShmTransport, TheClientCannotMapTheCompletionPageWritable) {
  Pair pair;
  EXPECT_EQ(mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, pair.completion_fd.get(), 0),
            MAP_FAILED);
}

TEST(ShmTransport, ATailOutsideTheRingIsABreach) {
  for (const uint64_t tail : {uint64_t{kRingBytes + 8}, ~uint64_t{7}, uint64_t{4}}) {
    Pair pair;
    pair.HostileControl().tail.store(tail);
    EXPECT_FALSE(pair.server->Receive().ok()) << tail;
  }
}

TEST(ShmTransport, ACommandPublishedInPartIsABreach) {
  Pair pair;
  pair.Send(1);
  pair.HostileControl().tail.store(16);
  EXPECT_FALSE(pair.server->Receive().ok());
}

// Receives one request as the daemon would.
Request Take(const UniqueFd& socket, UniqueFd& fd) {
  Request request = {};
  EXPECT_TRUE(ReceiveMessage(socket.get(), std::as_writable_bytes(std::span(&request, 1)), {&fd, 1}).ok());
  return request;
}

// Answers one request to share memory as the daemon would.
Request AnswerShare(const UniqueFd& socket, const absl::Status& status, UniqueFd& fd) {
  const Request request = Take(socket, fd);
  const Answer answer = MakeAnswer(request.id, status);
  EXPECT_TRUE(SendMessage(socket.get(), std::as_bytes(std::span(&answer, 1))).ok());
  return request;
}

TEST(SessionSocket, AnOpenedDeviceBringsItsMemory) {
  Pair pair;
  std::unique_ptr<ShmServer> server;
  Request request;
  std::thread daemon([&] {
    UniqueFd none;
    request = Take(pair.daemon_socket, none);
    DeviceFds fds;
    server = std::move(*ShmServer::Create(fds));
    EXPECT_TRUE(SendDevice(pair.daemon_socket.get(), request.id, fds).ok());
  });
  auto fds = pair.socket->OpenDevice(3);
  daemon.join();
  ASSERT_TRUE(fds.ok()) << fds.status();
  EXPECT_EQ(request.kind, RequestKind::kOpenDevice);
  EXPECT_EQ(request.id, 3u);
  const auto client =
      *ShmClient::Create(pair.socket, *std::move(fds), kStagingBytes, ShmClient::Waits::kForDaemon);
  server->SetAllocatedBytes(77);
  EXPECT_EQ(client->AllocatedBytes(), 77u);
}

TEST(SessionSocket, ADeviceThatIsRefusedOrComesWithoutMemoryIsAnError) {
  Pair pair;
  std::thread daemon([&] {
    for (const absl::Status& status :
         {absl::UnavailableError("its executor is being replaced"), absl::OkStatus()}) {
      UniqueFd none;
      AnswerShare(pair.daemon_socket, status, none);
    }
  });
  EXPECT_EQ(pair.socket->OpenDevice(0).status(), absl::UnavailableError("its executor is being replaced"));
  EXPECT_EQ(pair.socket->OpenDevice(0).status().code(), absl::StatusCode::kInternal);
  daemon.join();
}

TEST(HostMemory, AClientSharesItAndBothSeeTheSameBytes) {
  Pair pair;
  constexpr uint64_t kBytes = 2 * kHostMemoryUnit;
  const UniqueFd memory = *CreateHostMemory(kBytes);
  const Mapping here = *Mapping::Map(memory, kBytes, Access::kReadWrite);
  UniqueFd received;
  Request question;
  std::thread daemon([&] { question = AnswerShare(pair.daemon_socket, absl::OkStatus(), received); });
  EXPECT_TRUE(pair.socket->ShareHostMemory(9, memory, kBytes, 5).ok());
  daemon.join();
  EXPECT_EQ(question.kind, RequestKind::kShareMemory);
  EXPECT_EQ(question.id, 9u);
  EXPECT_EQ(question.devices, 5u);
  const auto accepted = ClientMemory::Accept(std::move(received), question.bytes);
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  const std::span<std::byte> there = accepted->memory().bytes;
  ASSERT_EQ(there.size(), kBytes);
  here.data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(there[kBytes - 1], std::byte{7});
  there[0] = std::byte{8};
  EXPECT_EQ(here.data()[0], std::byte{8});
}

TEST(HostMemory, ARefusalArrivesInWords) {
  Pair pair;
  const UniqueFd memory = *CreateHostMemory(kHostMemoryUnit);
  UniqueFd received;
  const absl::Status refusal = absl::ResourceExhaustedError("no more than 5 MiB");
  std::thread daemon([&] { AnswerShare(pair.daemon_socket, refusal, received); });
  EXPECT_EQ(pair.socket->ShareHostMemory(1, memory, kHostMemoryUnit, 1), refusal);
  daemon.join();
}

TEST(HostMemory, ADeadDaemonEndsTheWaitForItsAnswer) {
  const UniqueFd memory = *CreateHostMemory(kHostMemoryUnit);
  Pair pair;
  std::thread daemon([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pair.daemon_socket.Reset();
  });
  EXPECT_EQ(pair.socket->ShareHostMemory(1, memory, kHostMemoryUnit, 1).code(),
            absl::StatusCode::kUnavailable);
  daemon.join();
}

TEST(HostMemory, WhatIsNoSealedMemfdWithAllItsPagesIsNotAccepted) {
  constexpr uint64_t kBytes = kHostMemoryUnit;
  const auto refusal = [](UniqueFd fd, uint64_t bytes = kBytes) {
    const auto accepted = ClientMemory::Accept(std::move(fd), bytes);
    return accepted.ok() ? std::string("accepted") : std::string(accepted.status().message());
  };
  const auto memfd = [](bool allocated, unsigned seals) {
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(fd.get(), kBytes), 0);
    if (allocated) EXPECT_EQ(fallocate(fd.get(), 0, 0, kBytes), 0);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  constexpr unsigned kAll = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_EQ(refusal(memfd(true, kAll)), "accepted");
  EXPECT_THAT(refusal(UniqueFd(eventfd(0, 0))), HasSubstr("not a memfd"));
  EXPECT_THAT(refusal(UniqueFd(-1)), HasSubstr("not a memfd"));
  for (const unsigned wrong : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL})
    EXPECT_THAT(refusal(memfd(true, kAll ^ wrong)), HasSubstr("not sealed as required"));
  EXPECT_THAT(refusal(memfd(true, kAll | F_SEAL_WRITE)), HasSubstr("mmap"));
  EXPECT_THAT(refusal(memfd(false, kAll)), HasSubstr("some of its pages"));
  UniqueFd holed = memfd(true, kAll);
  ASSERT_EQ(fallocate(holed.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), 0);
  EXPECT_THAT(refusal(std::move(holed)), HasSubstr("some of its pages"));
  EXPECT_THAT(refusal(memfd(true, kAll), 2 * kBytes), HasSubstr("fewer than the 131072"));
  EXPECT_THAT(refusal(memfd(true, kAll), kBytes - 1), HasSubstr("not a multiple"));
  EXPECT_THAT(refusal(memfd(true, kAll), 0), HasSubstr("not a multiple"));
}

TEST(Handshake, VersionsNegotiateToTheHighestOfBoth) {
  EXPECT_EQ(NegotiateVersion(wire::kOldestVersion, 999), wire::kNewestVersion);
  EXPECT_EQ(NegotiateVersion(999, 1000), 0);
  EXPECT_EQ(NegotiateVersion(0, 0), 0);
}

TEST(Handshake, MessagesCarryFds) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
  UniqueFd left(sockets[0]), right(sockets[1]);
  auto shared = CreateSealedMemfd("test", 4096);
  const int raw = shared->get();
  const Hello hello = {kHelloMagic, 1, 2, "me"};
  ASSERT_TRUE(SendMessage(left.get(), std::as_bytes(std::span(&hello, 1)), {&raw, 1}).ok());
  Hello received;
  UniqueFd fd;
  ASSERT_TRUE(ReceiveMessage(right.get(), std::as_writable_bytes(std::span(&received, 1)), {&fd, 1}).ok());
  EXPECT_EQ(GetText(received.client_name), "me");
  EXPECT_TRUE(Mapping::Map(fd, 4096, Access::kReadWrite).ok());
}

TEST(Handshake, AMessageCarriesAsManyDescriptorsAsItMay) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  const UniqueFd left(sockets[0]), right(sockets[1]);
  const std::vector<int> sent(kMaxMessageFds, left.get());
  const std::byte mark{7};
  ASSERT_TRUE(SendMessage(left.get(), {&mark, 1}, sent).ok());
  std::byte received{};
  std::array<UniqueFd, kMaxMessageFds> fds;
  ASSERT_TRUE(ReceiveMessage(right.get(), {&received, 1}, fds).ok());
  EXPECT_EQ(received, mark);
  for (const UniqueFd& fd : fds) EXPECT_TRUE(fd.valid());
  EXPECT_DEATH((void)SendMessage(left.get(), {&mark, 1}, std::vector<int>(kMaxMessageFds + 1, left.get())),
               "CHECK");
}

TEST(Handshake, AMessageWithTooManyFdsIsRefusedAndTheyAreClosed) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
  UniqueFd left(sockets[0]), right(sockets[1]);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  UniqueFd read_end(pipes[0]), write_end(pipes[1]);
  const int two[] = {write_end.get(), write_end.get()};
  const uint32_t message = 5;
  for (const size_t wanted : {size_t{0}, size_t{1}}) {
    ASSERT_TRUE(SendMessage(left.get(), std::as_bytes(std::span(&message, 1)), two).ok());
    uint32_t received;
    UniqueFd fd;
    const absl::Status status =
        ReceiveMessage(right.get(), std::as_writable_bytes(std::span(&received, 1)), {&fd, wanted});
    EXPECT_THAT(status.message(), HasSubstr("2 file descriptors"));
  }
  write_end.Reset();
  char byte;
  EXPECT_EQ(read(read_end.get(), &byte, 1), 0) << "somebody still has the other end";
}

TEST(Handshake, AMessageOfAnotherSizeIsRefused) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
  UniqueFd left(sockets[0]), right(sockets[1]);
  const std::array<std::byte, 5> few{};
  ASSERT_TRUE(SendMessage(left.get(), few).ok());
  Hello received;
  EXPECT_THAT(ReceiveMessage(right.get(), std::as_writable_bytes(std::span(&received, 1))).message(),
              HasSubstr("5 bytes where 72 were expected"));
}

}  // namespace
}  // namespace xpud::transport
