// A daemon refuses to start if another user could have created or could change its folders, sockets and
// files.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/unique_fd.h"
#include "tests/e2e/daemon_process.h"

namespace xpud::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kSomebody = 12345, kOther = 12346;

class Owners : public ::testing::Test {
 protected:
  Owners() {
    char pattern[] = "/tmp/xpud-owners-XXXXXX";
    top_ = mkdtemp(pattern);
    run_ = top_ + "/run";
    cache_ = top_ + "/cache";
    for (const std::string& folder : {run_, cache_}) {
      fs::create_directory(folder);
      chmod(folder.c_str(), 0700);
    }
  }
  ~Owners() override { fs::remove_all(top_); }

  // Returns the message of a daemon that refuses to start; "" if it starts (and then ends by itself).
  std::string Refusal(uid_t uid = geteuid()) const {
    const std::string log = top_ + "/log";
    const pid_t child = fork();
    if (child == 0) {
      const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, STDOUT_FILENO);
      dup2(out, STDERR_FILENO);
      if (uid != geteuid() && (setgid(uid) != 0 || setuid(uid) != 0)) _exit(99);
      const std::string binary = DaemonBinary(), socket = run_ + "/xpud.sock";
      execl(binary.c_str(), binary.c_str(), "--socket", socket.c_str(), "--cache-dir", cache_.c_str(),
            "--device", "cpu", "--exit-when-idle", "0", nullptr);
      _exit(98);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_LT(WEXITSTATUS(status), 98) << "the daemon could not be run";
    if (WEXITSTATUS(status) == 0) return "";
    std::ifstream file(log);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  static void MakeSocket(const std::string& path) {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address = {AF_UNIX, {}};
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }

  std::string top_, run_, cache_;
};

TEST_F(Owners, FoldersOfOursAndADeadDaemonsSocketsAreTaken) {
  MakeSocket(run_ + "/xpud.sock");
  MakeSocket(run_ + "/control.sock");
  std::ofstream(run_ + "/xpud.sock.lock") << "1234567\n";
  EXPECT_EQ(Refusal(), "");
  EXPECT_FALSE(fs::exists(run_ + "/xpud.sock")) << "left behind";
}

TEST_F(Owners, FoldersThatOthersMayWriteAreRefused) {
  for (const std::string& folder : {run_, cache_}) {
    for (const mode_t mode : {0770, 0707, 01777}) {
      chmod(folder.c_str(), mode);
      EXPECT_THAT(Refusal(), AllOf(HasSubstr(folder + " belongs to uid"), HasSubstr("chmod go-w"))) << mode;
    }
    chmod(folder.c_str(), 0700);
  }
  chmod(top_.c_str(), 0777);
  EXPECT_THAT(Refusal(), HasSubstr("chmod o-w"));
}

TEST_F(Owners, FoldersThatAreMissingOrNoneAreRefused) {
  fs::remove(run_);
  EXPECT_THAT(Refusal(), HasSubstr("cannot use the folder " + run_));
  std::ofstream(run_) << "a file";
  EXPECT_THAT(Refusal(), HasSubstr("is not a folder"));
}

TEST_F(Owners, WhatIsNoSocketIsNotReplaced) {
  for (const char* name : {"/xpud.sock", "/control.sock"}) {
    std::ofstream(run_ + name) << "precious";
    EXPECT_THAT(Refusal(), HasSubstr("is not a socket"));
    EXPECT_TRUE(fs::exists(run_ + name));
    fs::remove(run_ + name);
    fs::create_symlink(top_ + "/elsewhere", run_ + name);
    EXPECT_THAT(Refusal(), HasSubstr("is not a socket"));
    fs::remove(run_ + name);
  }
}

TEST_F(Owners, ALockThatLeadsElsewhereIsNotWritten) {
  const std::string precious = top_ + "/precious", lock = run_ + "/xpud.sock.lock";
  std::ofstream(precious) << "precious";
  fs::create_symlink(precious, lock);
  EXPECT_THAT(Refusal(), HasSubstr("cannot open"));
  fs::remove(lock);
  fs::create_hard_link(precious, lock);
  EXPECT_THAT(Refusal(), HasSubstr("with one name: remove it"));
  fs::remove(lock);
  ASSERT_EQ(mkfifo(lock.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("has to be a file"));
  fs::remove(lock);
  std::ofstream(lock) << "1\n";
  chmod(lock.c_str(), 0666);
  EXPECT_THAT(Refusal(), HasSubstr("nobody else may write"));
  EXPECT_EQ(fs::file_size(precious), 8) << "what a lock led to was cut short";
}

TEST_F(Owners, ACacheThatIsALinkIsRefused) {
  fs::rename(cache_, top_ + "/real");
  fs::create_symlink(top_ + "/real", cache_);
  EXPECT_THAT(Refusal(), HasSubstr("cannot open " + cache_));
}

// Root creates files of other users and tests as a different user.
class OwnersAmongUsers : public Owners {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can make files of other users";
    if (system(("setpriv --reuid 12345 --clear-groups test -x " + DaemonBinary()).c_str()) != 0)
      GTEST_SKIP() << "other users cannot run " << DaemonBinary();
    chmod(top_.c_str(), 0755);
    for (const std::string& folder : {run_, cache_})
      ASSERT_EQ(chown(folder.c_str(), kSomebody, kSomebody), 0);
  }
};

TEST_F(OwnersAmongUsers, ADaemonOfSomebodyServesInItsOwnFolders) { EXPECT_EQ(Refusal(kSomebody), ""); }

TEST_F(OwnersAmongUsers, FoldersOfAnotherUserAreRefusedToRootToo) {
  EXPECT_THAT(Refusal(), HasSubstr(run_ + " belongs to uid 12345 with mode 0700; it has to belong to uid 0"));
  ASSERT_EQ(chown(run_.c_str(), kOther, kOther), 0);
  EXPECT_THAT(Refusal(kSomebody), HasSubstr("belongs to uid 12346"));
  ASSERT_EQ(chown(run_.c_str(), kSomebody, kSomebody), 0);
  ASSERT_EQ(chown(cache_.c_str(), kOther, kOther), 0);
  chmod(cache_.c_str(), 0755);
  EXPECT_THAT(Refusal(kSomebody), HasSubstr("belongs to uid 12346"));
}

TEST_F(OwnersAmongUsers, FoldersBelowAnotherUsersAreRefused) {
  ASSERT_EQ(chown(top_.c_str(), kOther, kOther), 0);
  EXPECT_THAT(Refusal(kSomebody), HasSubstr(top_ + " belongs to uid 12346"));
}

TEST_F(OwnersAmongUsers, SocketsAndLocksOfAnotherUserAreNotReplaced) {
  for (const char* name : {"/xpud.sock", "/control.sock"}) {
    MakeSocket(run_ + name);
    ASSERT_EQ(chown((run_ + name).c_str(), kOther, kOther), 0);
    EXPECT_THAT(Refusal(kSomebody), HasSubstr("is a socket of uid 12346; only a socket of uid 12345"));
    fs::remove(run_ + name);
  }
  std::ofstream(run_ + "/xpud.sock.lock") << "1\n";
  chmod((run_ + "/xpud.sock.lock").c_str(), 0666);
  EXPECT_THAT(Refusal(kSomebody), HasSubstr("xpud.sock.lock"));
}

}  // namespace
}  // namespace xpud::e2e
