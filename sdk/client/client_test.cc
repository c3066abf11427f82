#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sdk/client/address.h"
#include "sdk/client/buffer_ids.h"
#include "sdk/client/client_name.h"
#include "sdk/client/staging.h"
#include "sdk/client/visible_devices.h"

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

class Address : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/xpud-address-XXXXXX";
    directory_ = mkdtemp(pattern);
    unsetenv("XPUD_ADDRESS");
    setenv("XDG_RUNTIME_DIR", directory_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(Address, TheEnvironmentNamesTheOnlySocket) {
  setenv("XPUD_ADDRESS", "/somewhere.sock", 1);
  EXPECT_THAT(*DaemonSockets(""), ElementsAre("/somewhere.sock"));
  EXPECT_THAT(*DaemonSockets("/other.sock"), ElementsAre("/other.sock"));
  unsetenv("XPUD_ADDRESS");
}

TEST_F(Address, TheUsersDirectoryIsMadeForThemAlone) {
  const auto made = UserDirectory();
  ASSERT_TRUE(made.ok()) << made.status();
  struct stat info;
  ASSERT_EQ(stat(made->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(Address, ADirectoryThatOthersMayEnterIsRefused) {
  std::filesystem::create_directory(directory_ + "/xpud");
  chmod((directory_ + "/xpud").c_str(), 0755);
  EXPECT_THAT(UserDirectory().status().message(), HasSubstr("mode 0700"));
}

TEST_F(Address, NobodyAnsweringNamesWhatWasTried) {
  EXPECT_THAT(FindDaemonSocket("").status().message(), HasSubstr(directory_ + "/xpud/xpud.sock"));
}

}  // namespace
}  // namespace xpud::client
