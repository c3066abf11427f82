#include "deploy/agent/kubernetes/kubelet_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "proto/base/unique_fd.h"
#include "proto/base/unix_address.h"

namespace xpud::agent::kubernetes {
namespace {

class KubeletSockets : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "socketsXXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/a.sock";
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  UniqueFd Listen() const {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = *UnixAddress(path_);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd.get(), 0), 0);
    return fd;
  }

  std::string folder_, path_;
};

TEST_F(KubeletSockets, OnlyALiveSocketAnswers) {
  EXPECT_FALSE(Answers(path_));
  EXPECT_TRUE(CheckNoAgentAt(path_).ok());
  {
    const UniqueFd listening = Listen();
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(Answers(path_)) << "also with a full queue";
    EXPECT_TRUE(absl::IsFailedPrecondition(CheckNoAgentAt(path_)));
  }
  EXPECT_FALSE(Answers(path_)) << "the file that a killed agent left";
  unlink(path_.c_str());
  std::ofstream(path_) << "no socket";
  EXPECT_FALSE(Answers(path_));
  EXPECT_FALSE(Answers(std::string(200, 'x')));
}

TEST_F(KubeletSockets, AFileThatIsMadeAnewIsAnother) {
  EXPECT_EQ(IdentityOf(path_), std::nullopt);
  const UniqueFd first = Listen();
  const auto before = IdentityOf(path_);
  ASSERT_TRUE(before);
  EXPECT_EQ(IdentityOf(path_), before);
  chmod(path_.c_str(), 0600);
  EXPECT_TRUE(IdentityOf(path_)->IsSameFile(*before));
  unlink(path_.c_str());
  const UniqueFd second = Listen();
  EXPECT_NE(IdentityOf(path_), before);
  EXPECT_FALSE(IdentityOf(path_)->IsSameFile(*before)) << "the first is still in use";
}

}  // namespace
}  // namespace xpud::agent::kubernetes
