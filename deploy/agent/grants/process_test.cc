#include "deploy/agent/grants/process.h"

#include <grp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/agent/grants/process_watch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/mutex.h"

namespace xpud::agent {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

// A process that waits until it is killed.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ != 0) return;
    while (true) pause();
  }
  ~Child() { End(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  UniqueFd Open() const { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0))); }
  void End() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(Callers, AreWhoTheKernelSays) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]), theirs(ends[1]);
  const auto caller = CallerAt(ours.get());
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->uid, geteuid());
  if (!caller->process.valid()) GTEST_SKIP() << "SO_PEERPIDFD needs Linux 6.5";
  EXPECT_EQ(NameOf(caller->process)->pid, getpid());
}

// A process that connects to `socket` as a user with groups, and waits.
class Connecting {
 public:
  Connecting(uid_t uid, gid_t gid, const std::vector<gid_t>& groups, const sockaddr_un& address)
      : pid_(fork()) {
    if (pid_ != 0) return;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (setgroups(groups.size(), groups.data()) != 0 || setresgid(gid, gid, gid) != 0 ||
        setresuid(uid, uid, uid) != 0 ||
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      _exit(1);
    while (true) pause();
  }
  ~Connecting() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

 private:
  const pid_t pid_;
};

TEST(Callers, HaveTheGroupsThatTheKernelSays) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can have other groups";
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  absl::StrCat("@xpud-callers-", getpid()).copy(address.sun_path, sizeof(address.sun_path));
  address.sun_path[0] = '\0';  // an abstract socket, which every user may connect to
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  std::vector<gid_t> many;
  for (gid_t gid = 70'000; gid < 70'200; ++gid) many.push_back(gid);
  for (const std::vector<gid_t>& groups : {std::vector<gid_t>{}, {7001, 7002}, many}) {
    const Connecting other(61'001, 7003, groups, address);
    const UniqueFd connection(accept(listener.get(), nullptr, nullptr));
    const auto caller = CallerAt(connection.get());
    ASSERT_TRUE(caller.ok()) << caller.status();
    std::vector<gid_t> expected = groups;
    expected.insert(expected.begin(), 7003);
    EXPECT_EQ(caller->uid, 61'001u);
    EXPECT_THAT(caller->groups, UnorderedElementsAreArray(expected));
  }
}

TEST(Processes, AreFoundByTheirNamesUntilTheyEnd) {
  Child child;
  const auto name = NameOf(child.Open());
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(name->pid, child.pid());
  EXPECT_TRUE(OpenProcess(*name).ok());
  ProcessName earlier = *name;
  earlier.started += "1";
  EXPECT_EQ(OpenProcess(earlier).status().code(), absl::StatusCode::kNotFound)
      << "another process of its pid";
  const UniqueFd process = child.Open();
  child.End();
  EXPECT_EQ(OpenProcess(*name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(NameOf(process).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(NameOf(UniqueFd()).status().message()), HasSubstr("needs Linux 6.5"));
}

class Watched : public ::testing::Test {
 protected:
  void Ended(const std::string& key) {
    const MutexLock lock(mutex_);
    ended_.push_back(key);
    changed_.NotifyAll();
  }
  std::vector<std::string> Await(size_t count) {
    const MutexLock lock(mutex_);
    const auto end = std::chrono::steady_clock::now() + 5s;
    while (ended_.size() < count && std::chrono::steady_clock::now() < end) changed_.WaitFor(mutex_, 10ms);
    return ended_;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> ended_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ProcessWatch> watch_ = *ProcessWatch::Start([this](const std::string& key) { Ended(key); });
};

TEST_F(Watched, ProcessesAreReportedByTheirKeysWhenTheyEnd) {
  Child first, second;
  const UniqueFd process = first.Open();
  ASSERT_TRUE(watch_->Add("a", *NameOf(process), process).ok());
  ASSERT_TRUE(watch_->Add("b", *NameOf(process), process).ok());
  ASSERT_TRUE(watch_->Add("c", *NameOf(second.Open()), second.Open()).ok());
  EXPECT_FALSE(watch_->HasEnded("a"));
  const ProcessName name = *NameOf(process);
  first.End();
  EXPECT_THAT(Await(2), UnorderedElementsAre("a", "b"));
  EXPECT_TRUE(watch_->HasEnded("a"));
  EXPECT_FALSE(watch_->HasEnded("c"));
  EXPECT_EQ(watch_->Add("d", name, process).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(watch_->Keys(), ElementsAre("a", "b", "c"));
}

TEST_F(Watched, KeysMayBeRemovedAndAddedAgain) {
  Child first, second;
  const UniqueFd process = first.Open();
  const ProcessName name = *NameOf(process);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(watch_->Add("a", name, process).ok());
    watch_->Remove("a");
    EXPECT_FALSE(watch_->Has("a"));
  }
  ASSERT_TRUE(watch_->Add("a", name, process).ok());
  ASSERT_TRUE(watch_->Add("a", *NameOf(second.Open()), second.Open()).ok())
      << "another process has the key now";
  first.End();
  std::this_thread::sleep_for(50ms);
  EXPECT_THAT(Await(0), IsEmpty());
  second.End();
  EXPECT_THAT(Await(1), ElementsAre("a"));
}

TEST_F(Watched, AProcessThatHasEndedBeforeIsReported) {
  Child child;
  const UniqueFd process = child.Open();
  const ProcessName name = *NameOf(process);
  child.End();
  ASSERT_TRUE(watch_->Add("a", name, process).ok());
  EXPECT_THAT(Await(1), ElementsAre("a"));
}

}  // namespace
}  // namespace xpud::agent
