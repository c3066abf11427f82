#include "proto/base/trust.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kSomebody = 12345;

class Trust : public ::testing::Test {
 protected:
  Trust() {
    char pattern[] = "/tmp/xpud-trust-XXXXXX";
    top_ = mkdtemp(pattern);
    folder_ = top_ + "/folder";
    std::filesystem::create_directory(folder_);
    chmod(folder_.c_str(), 0750);
  }
  ~Trust() override { std::filesystem::remove_all(top_); }

  std::string Refusal() const {
    const absl::Status status = CheckFolderIsOurs(folder_);
    return status.ok() ? "" : std::string(status.message());
  }

  std::string top_, folder_;
};

TEST_F(Trust, AFolderOfOursIsTaken) { EXPECT_EQ(Refusal(), ""); }

TEST_F(Trust, AFolderThatOthersMayWriteIsRefused) {
  for (const mode_t mode : {0770, 0702, 0777, 01777}) {
    chmod(folder_.c_str(), mode);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("belongs to uid"), HasSubstr("chmod go-w " + folder_))) << mode;
  }
}

TEST_F(Trust, AFolderBelowOneThatOthersMayChangeIsRefused) {
  chmod(top_.c_str(), 0777);
  EXPECT_THAT(Refusal(), HasSubstr("chmod o-w " + top_));
  chmod(top_.c_str(), 01777);
  EXPECT_EQ(Refusal(), "");
}

TEST_F(Trust, AFileOrNothingIsRefused) {
  std::filesystem::remove(folder_);
  EXPECT_THAT(Refusal(), HasSubstr("cannot use the folder"));
  ASSERT_EQ(system(("touch " + folder_).c_str()), 0);
  EXPECT_THAT(Refusal(), HasSubstr("is not a folder"));
}

// Only root can give folders away, and become somebody else.
class TrustAmongUsers : public Trust {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can make files of other users";
  }
};

TEST_F(TrustAmongUsers, AFolderOfSomebodyElseIsRefused) {
  ASSERT_EQ(chown(folder_.c_str(), kSomebody, kSomebody), 0);
  EXPECT_THAT(Refusal(),
              HasSubstr("belongs to uid 12345 with mode 0750; it has to belong to uid 0 or to root"));
}

TEST_F(TrustAmongUsers, AFolderBelowSomebodyElsesIsRefused) {
  ASSERT_EQ(chown(top_.c_str(), kSomebody, kSomebody), 0);
  EXPECT_THAT(Refusal(), HasSubstr(top_ + " belongs to uid 12345"));
}

TEST_F(TrustAmongUsers, AFolderOfRootIsTaken) {
  chmod(top_.c_str(), 0755);
  chmod(folder_.c_str(), 0755);
  const pid_t child = fork();
  if (child == 0) _exit(setuid(kSomebody) == 0 && Refusal().empty() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace xpud
