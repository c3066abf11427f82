#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sdk/client/address.h"
#include "sdk/client/buffer_ids.h"
#include "sdk/client/client_name.h"
#include "sdk/client/helper_process.h"
#include "sdk/client/host_cache.h"
#include "sdk/client/kernel_ids.h"
#include "sdk/client/remote.h"
#include "sdk/client/staging.h"
#include "sdk/client/visible_devices.h"
#include "xpud/xpud.h"

namespace xpud::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BufferIds, AnIdComesBackWithALargerGeneration) {
  BufferIds ids;
  const BufferHandle first = *ids.Take();
  EXPECT_NE(first.id, 0u);
  ids.Return(first);
  const BufferHandle second = *ids.Take();
  EXPECT_EQ(second.id, first.id);
  EXPECT_GT(second.generation, first.generation);
}

TEST(BufferIds, AnIdWithoutGenerationsLeftIsRetired) {
  BufferIds ids;
  const BufferHandle first = *ids.Take();
  ids.Return({first.id, 0xffffffffu});
  EXPECT_NE(ids.Take()->id, first.id);
}

TEST(BufferIds, OfASessionInPlaceOfAnotherRepeatNoHandle) {
  BufferIds lost;
  const BufferHandle kept = *lost.Take();
  for (int i = 0; i < 5; ++i) lost.Return(*lost.Take());
  const uint32_t used = lost.Close();
  EXPECT_TRUE(absl::IsUnavailable(lost.Take().status()));
  BufferIds next(used);
  for (int i = 0; i < 3; ++i) {
    const BufferHandle made = *next.Take();
    EXPECT_GT(made.generation, 5u) << "ids repeat, generations do not";
    EXPECT_NE(made.generation, kept.generation);
  }
}

TEST(KernelIds, AreThoseOfTheWireAndComeBack) {
  KernelIds ids;
  for (uint32_t i = 1; i <= wire::kMaxKernels; ++i) ASSERT_EQ(*ids.Take(), i);
  EXPECT_TRUE(absl::IsResourceExhausted(ids.Take().status()));
  ids.Return(7);
  EXPECT_EQ(*ids.Take(), 7u);
  EXPECT_FALSE(ids.Take().ok());
}

TEST(Staging, PiecesComeFreeInOrderWhenTheirCommandCompletes) {
  Staging staging(1024);
  uint64_t completed = 0;
  const auto complete = [&](uint32_t, uint64_t sequence) { return sequence <= completed; };
  for (uint64_t sequence : {1, 2}) {
    const auto piece = staging.Take(512, complete);
    ASSERT_TRUE(piece);
    staging.Use(piece->end, 0, sequence, false);
  }
  EXPECT_FALSE(staging.Take(64, complete));
  completed = 1;
  const auto third = staging.Take(512, complete);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->offset, 0u);
}

// Memory as the daemon would share it.
void AddMemory(HostCache& cache, uint32_t id, uint64_t bytes) {
  UniqueFd fd = *CreateSealedMemfd("test", bytes);
  Mapping mapping = *Mapping::Map(fd, bytes, Access::kReadWrite);
  cache.Add(id, std::move(fd), std::move(mapping), /*devices=*/1);
}

TEST(HostCache, ClassesWasteAQuarterAtMostAndGrow) {
  uint64_t last = 0;
  for (uint64_t bytes = 1; bytes < (64 << 20); bytes += bytes / 7 + 1) {
    const uint64_t size = HostCache::ClassOf(bytes);
    EXPECT_GE(size, bytes);
    EXPECT_GE(size, last);
    EXPECT_EQ(size % 4096, 0u);
    if (bytes > (64 << 10)) EXPECT_LE(size, bytes + bytes / 4);
    last = size;
  }
}

TEST(HostCache, AFreedBlockServesAgainOnceItsCommandsHaveCompleted) {
  HostCache cache;
  uint64_t completed = 0;
  const auto complete = [&](uint32_t, uint32_t, uint64_t sequence) { return sequence <= completed; };
  EXPECT_EQ(cache.Take(5000, complete), nullptr);
  AddMemory(cache, 1, 16 << 20);
  HostCache::Block* const first = cache.Take(5000, complete);
  ASSERT_NE(first, nullptr);
  HostCache::Use(*first, 0, 0, 5);
  HostCache::Use(*first, 0, 3, 6);
  HostCache::Use(*first, 0, 0, 7);
  cache.Give(first);
  HostCache::Block* const second = cache.Take(5000, complete);
  EXPECT_NE(second, first);
  completed = 6;
  EXPECT_NE(cache.Take(5000, complete), first);
  completed = 7;
  EXPECT_EQ(cache.Take(6000, complete), first) << "of the same class";
}

TEST(HostCache, BytesAreFoundInTheBlockThatHoldsThem) {
  HostCache cache;
  const auto complete = [](uint32_t, uint32_t, uint64_t) { return true; };
  AddMemory(cache, 4, 1 << 20);
  AddMemory(cache, 5, 1 << 20);
  std::vector<HostCache::Block*> blocks;
  for (HostCache::Block* block; (block = cache.Take(100'000, complete)) != nullptr;) blocks.push_back(block);
  ASSERT_EQ(blocks.size(), 18u);  // 112 KiB each
  for (HostCache::Block* const block : blocks) {
    const HostCache::Place place = cache.Find({block->address + 17, block->bytes - 17});
    EXPECT_EQ(place.block, block);
    EXPECT_EQ(place.memory, block->memory->id);
    EXPECT_EQ(block->memory->mapping.data() + place.offset, block->address + 17);
    EXPECT_EQ(cache.Find({block->address + 17, block->bytes}).block, nullptr) << "into the next one";
    EXPECT_EQ(cache.Find({block->address - 1, 1}).block == block, false);
  }
  cache.Give(blocks[2]);
  EXPECT_EQ(cache.Find({blocks[2]->address, 1}).block, nullptr);
}

TEST(HostCache, OnlyMemoryThatNobodyHoldsOrUsesIsIdle) {
  HostCache cache;
  uint64_t completed = 0;
  const auto complete = [&](uint32_t, uint32_t, uint64_t sequence) { return sequence <= completed; };
  AddMemory(cache, 1, 1 << 20);
  EXPECT_EQ(cache.free_bytes(), 1u << 20);
  HostCache::Block* const block = cache.Take(4096, complete);
  EXPECT_EQ(cache.free_bytes(), 0u);
  EXPECT_EQ(cache.TakeIdle(complete), nullptr);
  HostCache::Use(*block, 0, 0, 1);
  cache.Give(block);
  EXPECT_EQ(cache.free_bytes(), 1u << 20);
  EXPECT_EQ(cache.TakeIdle(complete), nullptr);
  completed = 1;
  EXPECT_EQ(cache.TakeIdle(complete)->id, 1u);
  EXPECT_TRUE(cache.empty());
  EXPECT_EQ(cache.free_bytes(), 0u);
  EXPECT_EQ(cache.Take(4096, complete), nullptr) << "its blocks are gone";
}

TEST(Staging, AHeldPieceStaysUntilItIsReleased) {
  Staging staging(1024);
  const auto complete = [](uint32_t, uint64_t) { return true; };
  const auto piece = staging.Take(1024, complete);
  staging.Use(piece->end, 0, 1, true);
  EXPECT_FALSE(staging.Take(64, complete));
  staging.Release(piece->end);
  EXPECT_TRUE(staging.Take(64, complete));
}

TEST(VisibleDevices, AreSelectedAsCudaDoes) {
  EXPECT_THAT(VisibleDevices(nullptr, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(VisibleDevices("2,0", 3), ElementsAre(2, 0));
  EXPECT_THAT(VisibleDevices("", 3), ElementsAre());
  EXPECT_THAT(VisibleDevices("1,7,0", 3), ElementsAre(1));
  EXPECT_THAT(VisibleDevices("1,1,0", 3), ElementsAre(1));
}

TEST(ClientName, IsTheUsersThenTheProgramsChoiceThenItsName) {
  unsetenv("XPUD_CLIENT_NAME");
  EXPECT_EQ(ClientName(""), program_invocation_short_name);
  EXPECT_EQ(ClientName("worker"), "worker");
  setenv("XPUD_CLIENT_NAME", "night run", 1);
  EXPECT_EQ(ClientName("worker"), "night run");
  setenv("XPUD_CLIENT_NAME", "", 1);
  EXPECT_EQ(ClientName("worker"), "worker");
  unsetenv("XPUD_CLIENT_NAME");
}

TEST(ClientName, FitsTheGreetingAndATerminal) {
  EXPECT_EQ(ClientName("a\nb\x1b[31m"), "a?b?[31m");
  EXPECT_EQ(ClientName(std::string(100, 'x')), std::string(63, 'x'));
  EXPECT_EQ(ClientName(std::string(62, 'x') + "é"), std::string(62, 'x'));
}

TEST(RemoteAddress, APortBeyondThoseThatThereAreIsRefused) {
  for (const char* const wrong :
       {"host:65536", "host:0", "[::1]:72606", "host:4294974366", "host:99999999999999999999"}) {
    EXPECT_TRUE(IsRemoteAddress(wrong)) << wrong;
    EXPECT_THAT(std::string(CheckPort(wrong).message()), HasSubstr("use 1 to 65535")) << wrong;
    EXPECT_TRUE(absl::IsInvalidArgument(StartConnector(wrong, {}).status())) << wrong;
  }
  EXPECT_TRUE(CheckPort("host:65535").ok());
}

class Address : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/xpud-address-XXXXXX";
    directory_ = mkdtemp(pattern);
    unsetenv("XPUD_ADDRESS");
    setenv("XDG_RUNTIME_DIR", directory_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  static bool HasSystemDaemon() { return FindDaemonPlace("").whose == DaemonPlace::Whose::kSystem; }
  std::string Folder() const { return directory_ + "/xpud"; }
  std::string directory_;
};

TEST_F(Address, TheEnvironmentNamesTheOnlySocket) {
  setenv("XPUD_ADDRESS", "/somewhere.sock", 1);
  EXPECT_EQ(FindDaemonPlace("").address, "/somewhere.sock");
  EXPECT_EQ(FindDaemonPlace("/other.sock").address, "/other.sock");
  EXPECT_EQ(FindDaemonPlace("").whose, DaemonPlace::Whose::kNamed);
  unsetenv("XPUD_ADDRESS");
}

TEST_F(Address, LookingForADaemonMakesNothing) {
  if (HasSystemDaemon()) GTEST_SKIP() << "this machine has a system daemon";
  EXPECT_TRUE(absl::IsNotFound(FindDaemonSocket("").status()));
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(Address, TheUsersDirectoryIsMadeForThemAlone) {
  ASSERT_TRUE(MakeUserDirectory(Folder()).ok());
  struct stat info;
  ASSERT_EQ(stat(Folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(Address, ADirectoryThatOthersMayEnterIsRefused) {
  std::filesystem::create_directory(Folder());
  chmod(Folder().c_str(), 0755);
  EXPECT_THAT(MakeUserDirectory(Folder()).message(), HasSubstr("mode 0700"));
  if (HasSystemDaemon()) GTEST_SKIP() << "this machine has a system daemon";
  EXPECT_THAT(FindDaemonSocket("").status().message(), HasSubstr("mode 0700")) << "a stranger may answer";
}

TEST_F(Address, NobodyAnsweringNamesWhatWasTried) {
  if (HasSystemDaemon()) GTEST_SKIP() << "this machine has a system daemon";
  EXPECT_THAT(FindDaemonSocket("").status().message(), HasSubstr(Folder() + "/xpud.sock"));
}

// As after `sudo -E`: root must not leave a folder where the user cannot remove it.
TEST_F(Address, AnotherUsersRuntimeFolderIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  if (HasSystemDaemon()) GTEST_SKIP() << "this machine has a system daemon";
  ASSERT_EQ(chown(directory_.c_str(), 61'001, 61'001), 0);
  setenv("TMPDIR", directory_.c_str(), 1);
  EXPECT_EQ(FindDaemonPlace("").folder, "/tmp/xpud-0");
  EXPECT_THAT(MakeUserDirectory(Folder()).message(), HasSubstr("belongs to uid 61001"));
  unsetenv("TMPDIR");
}

TEST_F(Address, AMissingConnectorIsNamedAndNotTakenForAMissingDaemon) {
  setenv("XPUD_CONNECT", "/nowhere/xpud-connect", 1);
  ConnectOptions options;
  options.address = "127.0.0.1:9";
  const auto session = Session::Connect(options);
  unsetenv("XPUD_CONNECT");
  EXPECT_THAT(session.status().message(), HasSubstr("127.0.0.1:9: XPUD_CONNECT names /nowhere/xpud-connect"));
}

class Program : public Address {
 protected:
  void SetUp() override {
    Address::SetUp();
    path_ = std::getenv("PATH");
    std::filesystem::create_directories(directory_ + "/first/xpud-probe");
    std::filesystem::create_directory(directory_ + "/second");
    std::ofstream(directory_ + "/second/xpud-probe") << "#!/bin/sh\n";
    std::filesystem::permissions(directory_ + "/second/xpud-probe", std::filesystem::perms::owner_all);
    setenv("PATH", (directory_ + "/first:" + directory_ + "/second").c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    Address::TearDown();
  }
  std::string path_;
};

TEST_F(Program, AFolderOfItsNameIsPassedOver) {
  EXPECT_EQ(*FindBinary("xpud-probe", "XPUD_PROBE"), directory_ + "/second/xpud-probe");
}

TEST_F(Program, AFolderThatTheEnvironmentNamesIsRefused) {
  setenv("XPUD_PROBE", (directory_ + "/first/xpud-probe").c_str(), 1);
  EXPECT_THAT(FindBinary("xpud-probe", "XPUD_PROBE").status().message(), HasSubstr("is no program"));
  unsetenv("XPUD_PROBE");
}

}  // namespace
}  // namespace xpud::client
