// Shared memory that the client takes away: unsealed, truncated, full of holes, unmapped.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "proto/transport/host_memory.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using ::testing::HasSubstr;

using Memfds = Isolation;

constexpr size_t kBytes = 1 << 20;
constexpr uint32_t kMemory = 1;
constexpr wire::Handle kBuffer = {1, 1};

UniqueFd Memfd(unsigned seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(fallocate(fd.get(), 0, 0, kBytes), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

transport::Answer Share(HostileSession& session, const UniqueFd& memory, uint32_t id = kMemory) {
  const transport::Request message = {transport::RequestKind::kShareMemory, id, kBytes, 1};
  const int fd = memory.get();
  EXPECT_TRUE(transport::SendMessage(session.socket(), std::as_bytes(std::span(&message, 1)), {&fd, 1}).ok());
  transport::Answer answer = {};
  EXPECT_TRUE(
      transport::ReceiveMessage(session.socket(), std::as_writable_bytes(std::span(&answer, 1))).ok());
  return answer;
}

uint64_t PagesOf(const UniqueFd& memory) {
  struct stat info;
  EXPECT_EQ(fstat(memory.get(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512 / transport::kPageBytes;
}

TEST_F(Memfds, OfTheDaemonCannotBeResizedOrSealedAndCompletionsCannotBeWritten) {
  auto session = std::make_unique<HostileSession>(socket());
  for (const UniqueFd* fd : {&session->fds().ring, &session->fds().staging, &session->fds().completion}) {
    EXPECT_NE(ftruncate(fd->get(), 0), 0);
    EXPECT_NE(ftruncate(fd->get(), 1 << 30), 0);
    EXPECT_NE(fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
    EXPECT_NE(fcntl(fd->get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  }
  const int completion = session->fds().completion.get();
  constexpr size_t kSize = sizeof(transport::CompletionPage);
  EXPECT_EQ(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, completion, 0), MAP_FAILED);
  void* const page = mmap(nullptr, kSize, PROT_READ, MAP_SHARED, completion, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_NE(mprotect(page, kSize, PROT_READ | PROT_WRITE), 0);
  munmap(page, kSize);
  EXPECT_LT(write(completion, "x", 1), 0);
  EXPECT_NE(fallocate(completion, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kSize), 0);
  session.reset();
  ExpectAsBefore();
}

// Whoever was given a client's descriptors may keep them for ever.
TEST_F(Memfds, OfASessionThatEndedTakeNoMemory) {
  auto session = std::make_unique<HostileSession>(socket());
  std::memset(session->staging().data(), 1, session->staging().size());
  std::memset(session->ring().data(), 1, session->ring().size());
  const UniqueFd ring(dup(session->fds().ring.get())), staging(dup(session->fds().staging.get()));
  EXPECT_EQ(PagesOf(staging), transport::kStagingBytes / transport::kPageBytes);
  EXPECT_GE(PagesOf(ring), transport::kRingBytes / transport::kPageBytes);
  session.reset();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((PagesOf(staging) != 0 || PagesOf(ring) > 1) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(PagesOf(staging), 0u);
  EXPECT_LE(PagesOf(ring), 1u) << "only the control page stays";
  ExpectAsBefore();
}

TEST_F(Memfds, ThatCouldShrinkAreRefused) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  auto session = std::make_unique<HostileSession>(socket());
  for (const unsigned seals : {0u, 0u + F_SEAL_GROW, 0u + F_SEAL_SHRINK}) {
    const UniqueFd memory = Memfd(seals);
    EXPECT_THAT(Share(*session, memory).text, HasSubstr("not sealed")) << seals;
    EXPECT_EQ(ftruncate(memory.get(), 0), (seals & F_SEAL_SHRINK) == 0 ? 0 : -1);
  }
  session.reset();
  ExpectAsBefore();
}

// A missing page may be unavailable when it is needed, which is a SIGBUS.
TEST_F(Memfds, OfHugePagesAreRefused) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  auto session = std::make_unique<HostileSession>(socket());
  const UniqueFd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!memory.valid()) GTEST_SKIP() << "this kernel has no huge pages";
  ASSERT_EQ(ftruncate(memory.get(), 2 << 20), 0);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_THAT(Share(*session, memory).text, HasSubstr("huge pages"));
  session.reset();
  ExpectAsBefore();
}

// The daemon copies from and to the remaining pages, and never gets a SIGBUS.
TEST_F(Memfds, ThatClientsUnmapAndPunchAreCopiedAllTheSame) {
  auto session = std::make_unique<HostileSession>(socket());
  session->Put(Allocate(kBuffer, kBytes));
  for (int round = 0; round < 50; ++round) {
    for (const UniqueFd* fd : {&session->fds().ring, &session->fds().staging}) {
      if (round % 2 == 0) continue;
      EXPECT_EQ(
          fallocate(fd->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, transport::kPageBytes, kBytes), 0);
    }
    session->Put(Upload(kBuffer, 0, {0, 0, 0}, kBytes));
    session->Put(Download(kBuffer, 0, {kBytes, 0, 0}, kBytes));
    ASSERT_TRUE(session->Settle().ok());
  }
  session->Put(Upload(kBuffer, 0, {0, 0, 0}, kBytes));
  session->Publish();
  session->Unmap();
  innocent_.ExpectUnharmed();
  session.reset();
  ExpectAsBefore();
}

// If a client could free pages after the daemon has accepted the memory, the daemon's control group would be
// charged when it touches them next. So the daemon seals accepted memory against that.
TEST_F(Memfds, OfHostMemoryKeepTheirPages) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  const UniqueFd memory = Memfd(F_SEAL_SHRINK | F_SEAL_GROW);
  auto mapping = *Mapping::Map(memory, kBytes, Access::kReadWrite);
  auto session = std::make_unique<HostileSession>(socket());
  const auto answer = Share(*session, memory);
  ASSERT_EQ(answer.code, 0u) << answer.text;
  EXPECT_NE(fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  EXPECT_NE(madvise(mapping.data(), kBytes, MADV_REMOVE), 0);
  EXPECT_NE(ftruncate(memory.get(), 0), 0);
  EXPECT_EQ(PagesOf(memory), kBytes / transport::kPageBytes);
  // And it is of use to both.
  std::fill_n(mapping.data(), kBytes, std::byte{0x5a});
  session->Put(Allocate(kBuffer, kBytes));
  session->Put(Upload(kBuffer, 0, {0, kMemory, 0}, kBytes));
  session->Put(Download(kBuffer, 0, {0, 0, 0}, kBytes));
  ASSERT_TRUE(session->Settle().ok());
  EXPECT_EQ(session->staging()[kBytes - 1], std::byte{0x5a});
  std::fill_n(mapping.data(), kBytes, std::byte{0});
  session->Put(Download(kBuffer, 0, {0, kMemory, 0}, kBytes));
  ASSERT_TRUE(session->Settle().ok());
  EXPECT_EQ(mapping.data()[kBytes - 1], std::byte{0x5a});
  session.reset();
  ExpectAsBefore();
}

class MemfdsOfExecutors : public Isolation {
 protected:
  MemfdsOfExecutors() : Isolation({"--executor", "process"}) {}
};

// A replacement executor must be able to map the memory, so it cannot be sealed against holes. Holes read as
// zeros, which harm only the client, and no executor ends.
TEST_F(MemfdsOfExecutors, ThatAreHolesAreCopiedAsZeros) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  const UniqueFd memory = Memfd(F_SEAL_SHRINK | F_SEAL_GROW);
  auto mapping = *Mapping::Map(memory, kBytes, Access::kReadWrite);
  auto session = std::make_unique<HostileSession>(socket());
  ASSERT_EQ(Share(*session, memory).code, 0u);
  session->Put(Allocate(kBuffer, kBytes));
  std::atomic<bool> stop{false};
  std::thread puncher([&] {
    while (!stop) {
      std::fill_n(mapping.data(), kBytes, std::byte{0x5a});
      fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
    }
  });
  uint64_t zeros = 0;
  for (int round = 0; round < 300; ++round) {
    session->Put(Upload(kBuffer, 0, {0, kMemory, 0}, kBytes));
    session->Put(Download(kBuffer, 0, {0, 0, 0}, kBytes));
    session->Put(Download(kBuffer, 0, {0, kMemory, 0}, kBytes));
    ASSERT_TRUE(session->Settle().ok());
    for (const std::byte byte : session->staging().first(kBytes)) {
      ASSERT_TRUE(byte == std::byte{0x5a} || byte == std::byte{0}) << static_cast<int>(byte);
      zeros += byte == std::byte{0} ? 1 : 0;
    }
  }
  stop = true;
  puncher.join();
  std::printf("[ figures  ] %.1f%% of the bytes were zeros\n",
              100.0 * static_cast<double>(zeros) / (300.0 * kBytes));
  EXPECT_GT(zeros, 0u) << "no hole was copied";
  EXPECT_EQ(daemon_.StatusOf("executors_replaced"), 0);
  // The next executor maps the remaining pages.
  fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
  e2e::SignalProcess(daemon_.AwaitExecutor(), SIGKILL);
  session->Put(Upload(kBuffer, 0, {0, kMemory, 0}, kBytes));
  EXPECT_TRUE(session->Settle().ok());
  EXPECT_TRUE(
      e2e::Within(std::chrono::seconds(10), [&] { return daemon_.StatusOf("executors_replaced") == 1; }));
  EXPECT_EQ(daemon_.StatusOf("sessions_closed_for_fault"), 0);
  session.reset();
  innocent_.ExpectUnharmed();
}

// Memory that is punched while it is being accepted is refused, or loses the race: accepted memory has its
// pages.
TEST_F(Memfds, OfHostMemoryThatArePunchedMeanwhileAreRefusedOrKeepTheirPages) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  int accepted = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    const UniqueFd memory = Memfd(F_SEAL_SHRINK | F_SEAL_GROW);
    auto session = std::make_unique<HostileSession>(socket());
    std::atomic<bool> stop{false};
    std::thread puncher([&] {
      while (!stop) {
        if (round % 2 == 0) fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
        (void)fallocate(memory.get(), 0, 0, kBytes);
      }
    });
    const auto answer = Share(*session, memory);
    stop = true;
    puncher.join();
    if (answer.code == 0) EXPECT_EQ(PagesOf(memory), kBytes / transport::kPageBytes);
    ++(answer.code == 0 ? accepted : refused);
  }
  std::printf("[ figures  ] %d accepted, %d refused\n", accepted, refused);
  EXPECT_GT(accepted, 0);
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
