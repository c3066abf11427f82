#include "deploy/agent/kubernetes/tombstones.h"

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace xpud::agent::kubernetes {
namespace {

class TombstonesTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void Write(const std::string& content) { std::ofstream(path_) << content; }

  const std::string path_ = testing::TempDir() + "/tombstones_test";
};

TEST_F(TombstonesTest, APrepareAfterTheUnprepareIsLate) {
  const auto stones = Tombstones::Open(path_);
  EXPECT_FALSE(stones->IsLate("a", {"pod-1"}));
  ASSERT_TRUE(stones->Add("a", {"pod-1", "pod-2"}).ok());
  EXPECT_TRUE(stones->IsLate("a", {"pod-1"}));
  EXPECT_TRUE(stones->Contains("a"));
  EXPECT_FALSE(stones->Contains("b"));
}

TEST_F(TombstonesTest, ALaterPodMayHaveTheClaim) {
  const auto stones = Tombstones::Open(path_);
  ASSERT_TRUE(stones->Add("a", {"pod-1"}).ok());
  EXPECT_FALSE(stones->IsLate("a", {"pod-2"}));
  EXPECT_FALSE(stones->IsLate("a", {"pod-1", "pod-2"}));
  ASSERT_TRUE(stones->Remove("a").ok());
  EXPECT_FALSE(stones->Contains("a"));
}

TEST_F(TombstonesTest, WhereThePodsAreNotKnownAllAreLate) {
  const auto stones = Tombstones::Open(path_);
  ASSERT_TRUE(stones->Add("a", {}).ok());
  EXPECT_TRUE(stones->IsLate("a", {"pod-1"}));
}

TEST_F(TombstonesTest, OutlivesTheAgent) {
  ASSERT_TRUE(Tombstones::Open(path_)->Add("a", {"pod-1"}).ok());
  const auto stones = Tombstones::Open(path_);
  EXPECT_TRUE(stones->IsLate("a", {"pod-1"}));
  EXPECT_FALSE(stones->IsLate("a", {"pod-2"}));
}

TEST_F(TombstonesTest, OldEntriesAndThoseOfTheFutureDoNotCount) {
  const int64_t now = time(nullptr);
  Write(absl::StrCat("old ", now - Tombstones::kLifetime.count() - 2, " p\nfuture ", now + 1000, " p\nnew ",
                     now, " p\n"));
  const auto stones = Tombstones::Open(path_);
  EXPECT_FALSE(stones->Contains("old"));
  EXPECT_FALSE(stones->Contains("future"));
  EXPECT_TRUE(stones->Contains("new"));
}

TEST_F(TombstonesTest, UnreadableLinesDoNotStopTheOthers) {
  Write(absl::StrCat("\n\xff\xfe\nx\na b c\n  \ngood ", time(nullptr), " p\n"));
  EXPECT_TRUE(Tombstones::Open(path_)->Contains("good"));
}

TEST_F(TombstonesTest, TheFileIsBounded) {
  std::string content;
  const int64_t now = time(nullptr);
  for (size_t i = 0; i < Tombstones::kMax + 10; ++i)
    absl::StrAppend(&content, "uid-", i, " ", now - 5, " p\n");
  Write(content);
  const auto stones = Tombstones::Open(path_);
  ASSERT_TRUE(stones->Add("newest", {"p"}).ok());
  EXPECT_TRUE(stones->Contains("newest"));
  std::ifstream file(path_);
  size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_LE(lines, Tombstones::kMax);
}

TEST_F(TombstonesTest, AFolderThatIsNotThereIsAnError) {
  const auto stones = Tombstones::Open(testing::TempDir() + "/no/such/folder");
  const absl::Status status = stones->Add("a", {});
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/no/such/folder"), std::string::npos) << status;
}

}  // namespace
}  // namespace xpud::agent::kubernetes
