// Claims' files and doors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "daemon/service/claim_doors.h"
#include "daemon/service/claim_store.h"

namespace xpud::service {
namespace {

using ::testing::HasSubstr;

class ClaimStoreTest : public ::testing::Test {
 protected:
  ~ClaimStoreTest() override { std::filesystem::remove_all(folder_); }

  static std::string MakeFolder() {
    char name[] = "/tmp/xpud-claims-XXXXXX";
    return mkdtemp(name);
  }
  static ClaimStore::Kept Sample(const std::string& key) {
    Claim claim = {.key = key, .devices = {1, 0}, .memory_least = 5};
    claim.time = {.priority = PriorityClass::kBatch, .weight = 7, .least = 10, .most = 20, .paused = true};
    claim.memory_most = 6;
    claim.sessions_most = 3;
    claim.labels = {{"pod", "web \"7\" ü"}};
    claim.holders = {{1000}, {8, "team"}};
    claim.door_uid = 0;
    claim.lifetime_ms = 60'000;
    claim.drained = true;
    return {claim, BootClockNs() + 60'000'000'000};
  }
  std::string Path(const std::string& key) const { return folder_ + "/claims/" + key + ".claim"; }
  std::string Read(const std::string& key) const {
    std::ifstream file(Path(key));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& key, const std::string& text) const { std::ofstream(Path(key)) << text; }
  // Why the only file cannot be read; the claim "good" beside it can.
  std::string Reason() {
    const ClaimStore::Found found = store_->Load(2);
    EXPECT_EQ(found.claims.size(), 1u);
    EXPECT_EQ(found.unreadable.size(), 1u);
    return found.unreadable.empty() ? "" : found.unreadable.begin()->second;
  }

  const std::string folder_ = MakeFolder();
  std::unique_ptr<ClaimStore> store_ = *ClaimStore::Open(folder_);
};

TEST_F(ClaimStoreTest, ClaimsAreReadAsTheyWereWritten) {
  const ClaimStore::Kept kept = Sample("web");
  ASSERT_TRUE(store_->Save(kept).ok());
  const ClaimStore::Found found = (*ClaimStore::Open(folder_))->Load(2);
  ASSERT_EQ(found.claims.size(), 1u);
  EXPECT_EQ(found.claims[0].claim, kept.claim);
  EXPECT_EQ(found.claims[0].expires_ns, kept.expires_ns);
  ASSERT_TRUE(store_->Remove("web").ok());
  EXPECT_TRUE(store_->Load(2).claims.empty());
}

// After a reboot the clock of the last boot means nothing: what was left counts from now on.
TEST_F(ClaimStoreTest, AfterARebootTheRestCounts) {
  constexpr uint64_t kMinuteNs = 60'000'000'000;
  ClaimStore::Kept kept = Sample("web");
  ASSERT_TRUE(store_->Save(kept).ok());
  const ClaimStore::Found same = (*ClaimStore::Open(folder_))->Load(2);
  EXPECT_EQ(same.claims.at(0).expires_ns, kept.expires_ns);
  const uint64_t before = BootClockNs();
  const ClaimStore::Found found = (*ClaimStore::Open(folder_, "another boot"))->Load(2);
  ASSERT_EQ(found.claims.size(), 1u);
  EXPECT_GT(found.claims[0].expires_ns, before + kMinuteNs / 2);
  EXPECT_LE(found.claims[0].expires_ns, BootClockNs() + kMinuteNs);
  kept.expires_ns = 0;
  ASSERT_TRUE(store_->Save(kept).ok());
  EXPECT_EQ((*ClaimStore::Open(folder_, "another boot"))->Load(2).claims.at(0).expires_ns, 0u);
}

TEST_F(ClaimStoreTest, EditedCutAndSwappedFilesStayAndDoNotCount) {
  ASSERT_TRUE(store_->Save(Sample("good")).ok());
  ASSERT_TRUE(store_->Save(Sample("web")).ok());
  const std::string text = Read("web");
  std::string edited = text;
  edited.replace(edited.find("\"weight\": 7"), 11, "\"weight\": 8");
  Write("web", edited);
  EXPECT_THAT(Reason(), HasSubstr("edited or cut"));
  EXPECT_EQ(Read("web"), edited);
  for (size_t bytes = 0; bytes < text.size(); bytes += 7) {
    Write("web", text.substr(0, bytes));
    EXPECT_NE(Reason(), "") << bytes;
  }
  Write("web", Read("good"));
  EXPECT_EQ(Reason(), "it is that of the claim good");
  Write("web", text);
  chmod(Path("web").c_str(), 0666);
  EXPECT_THAT(Reason(), HasSubstr("mode 0666"));
  std::filesystem::remove(Path("web"));
  std::filesystem::create_symlink(Path("good"), Path("web"));
  EXPECT_NE(Reason(), "");
}

TEST_F(ClaimStoreTest, AFileThatCannotBeReadIsNotReplaced) {
  Write("web", "mine");
  EXPECT_EQ(store_->Load(2).unreadable.size(), 1u);
  EXPECT_THAT(std::string(store_->Save(Sample("web")).message()), HasSubstr("is in the way"));
  EXPECT_EQ(Read("web"), "mine");
  std::filesystem::remove(Path("web"));
  EXPECT_TRUE(store_->Save(Sample("web")).ok());
}

TEST_F(ClaimStoreTest, ADeviceThatIsGoneIsAReason) {
  ASSERT_TRUE(store_->Save(Sample("web")).ok());
  const ClaimStore::Found found = store_->Load(1);
  ASSERT_EQ(found.unreadable.size(), 1u);
  EXPECT_EQ(found.unreadable.begin()->second, "there is no device 1; there are 1, from 0");
}

TEST_F(ClaimStoreTest, AFolderThatOthersMayWriteIsRefused) {
  chmod((folder_ + "/claims").c_str(), 0777);
  const auto opened = ClaimStore::Open(folder_);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("state-dir: "));
}

TEST(ClaimDoors, APathThatIsTooLongForASocketIsRefused) {
  const ClaimDoors doors("/tmp/a-folder-that-is-not-there/with-a-long-name");
  EXPECT_TRUE(doors.CheckPaths("web").ok());
  const absl::Status status = doors.CheckPaths(std::string(63, 'a'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 129 bytes; a socket's may have 107"));
}

}  // namespace
}  // namespace xpud::service
