// No path or name of a client is ever opened. The kernel notifies this test, through seccomp, of every call
// with which a daemon uses a path, while clients send paths wherever the protocol has room for text.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/mutex.h"
#include "proto/transport/handshake.h"
#include "sdk/client/connect.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_session.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSent[] = "/tmp/xpud-a-client-sent-this";

// A system call and the argument that is a path or, with `address`, a socket's address.
struct PathCall {
  int number;
  int argument;
  bool address = false;
};
constexpr PathCall kPathCalls[] = {
    {SYS_open, 0},     {SYS_openat, 1},     {SYS_openat2, 1},    {SYS_creat, 0},         {SYS_stat, 0},
    {SYS_lstat, 0},    {SYS_newfstatat, 1}, {SYS_statx, 1},      {SYS_access, 0},        {SYS_faccessat, 1},
    {SYS_readlink, 0}, {SYS_readlinkat, 1}, {SYS_execve, 0},     {SYS_execveat, 1},      {SYS_unlink, 0},
    {SYS_unlinkat, 1}, {SYS_rename, 1},     {SYS_renameat, 3},   {SYS_renameat2, 3},     {SYS_mkdir, 0},
    {SYS_mkdirat, 1},  {SYS_rmdir, 0},      {SYS_truncate, 0},   {SYS_chdir, 0},         {SYS_statfs, 0},
    {SYS_link, 0},     {SYS_symlink, 0},    {SYS_faccessat2, 1}, {SYS_connect, 1, true}, {SYS_bind, 1, true},
};

// Installs a filter that reports every such call. Returns the descriptor for the notifications.
int AskBeforePathCalls() {
  std::vector<sock_filter> program = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)}};
  for (const PathCall& call : kPathCalls) {
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<uint32_t>(call.number)});
    program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF});
  }
  program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return static_cast<int>(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

// A daemon whose used paths are all recorded.
class WatchedDaemon {
 public:
  explicit WatchedDaemon(const std::string& folder) : socket_(folder + "/xpud.sock") {
    int ready[2], channel[2];
    if (pipe2(ready, O_CLOEXEC) != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0)
      std::abort();
    const UniqueFd here(channel[0]), there(channel[1]), ready_here(ready[0]);
    UniqueFd ready_there(ready[1]);
    pid_ = fork();
    if (pid_ == 0) Become(folder, there.get(), ready_there.get());
    ready_there.Reset();
    char byte;
    if (!transport::ReceiveMessage(here.get(), std::as_writable_bytes(std::span(&byte, 1)), {&questions_, 1})
             .ok())
      std::abort();
    watcher_ = std::thread([this] { Watch(); });
    serves_ = read(ready_here.get(), &byte, 1) == 1;
  }
  ~WatchedDaemon() {
    SignalProcess(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    watcher_.join();
  }
  WatchedDaemon(const WatchedDaemon&) = delete;
  WatchedDaemon& operator=(const WatchedDaemon&) = delete;

  bool serves() const { return serves_; }
  const std::string& socket() const { return socket_; }
  std::vector<std::string> Paths() {
    MutexLock lock(mutex_);
    return paths_;
  }
  void Forget() {
    MutexLock lock(mutex_);
    paths_.clear();
  }

 private:
  [[noreturn]] void Become(const std::string& folder, int channel, int ready) const {
    const int questions = AskBeforePathCalls();
    const char mark = 0;
    if (questions < 0 ||
        !transport::SendMessage(channel, std::as_bytes(std::span(&mark, 1)), {&questions, 1}).ok())
      _exit(1);
    dup2(ready, 3);
    const std::string binary = DaemonBinary(), cache = folder + "/cache";
    execl(binary.c_str(), binary.c_str(), "--socket", socket_.c_str(), "--cache-dir", cache.c_str(),
          "--device", "cpu", "--ready-fd", "3", nullptr);
    _exit(1);
  }

  void Watch() {
    for (;;) {
      pollfd question = {questions_.get(), POLLIN, 0};
      if (poll(&question, 1, -1) != 1 || (question.revents & POLLIN) == 0) return;  // all its processes ended
      seccomp_notif asked = {};
      if (ioctl(questions_.get(), SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;
      std::string path = PathOf(asked);
      {
        MutexLock lock(mutex_);
        paths_.push_back(std::move(path));
      }
      seccomp_notif_resp answer = {asked.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
      ioctl(questions_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
  }

  static std::string PathOf(const seccomp_notif& asked) {
    for (const PathCall& call : kPathCalls) {
      if (call.number != asked.data.nr) continue;
      const uint64_t address =
          asked.data.args[call.argument] + (call.address ? offsetof(sockaddr_un, sun_path) : 0);
      const UniqueFd memory(
          open(("/proc/" + std::to_string(asked.pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
      std::string text;
      for (char c; pread(memory.get(), &c, 1, static_cast<off_t>(address + text.size())) == 1 && c != '\0';)
        text.push_back(c);
      return text;
    }
    return "";
  }

  const std::string socket_;
  pid_t pid_ = -1;
  bool serves_ = false;
  UniqueFd questions_;
  std::thread watcher_;
  Mutex mutex_;
  std::vector<std::string> paths_ ABSL_GUARDED_BY(mutex_);
};

class Opens : public ::testing::Test {
 protected:
  Opens() {
    char pattern[] = "/tmp/xpud-opens-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~Opens() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

// Returns text of `bytes` that repeats a path.
std::string Filled(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text.append(kSent).append("/", 1).append(1, '\0');
  text.resize(bytes);
  return text;
}

void GreetWithPaths(const std::string& address) {
  for (const std::string& name :
       {std::string(kSent), std::string("../../../../../../") + kSent, std::string("~")}) {
    ConnectOptions options;
    options.address = address;
    options.client_name = name;
    const auto session = Session::Connect(options);
    ASSERT_TRUE(session.ok());
    EXPECT_TRUE((*session)->DefaultQueue(0).Synchronize().ok());
  }
  const auto nonsense = client::ConnectSocket(address);
  ASSERT_TRUE(nonsense.ok());
  const std::string text = Filled(sizeof(transport::Hello));
  EXPECT_TRUE(transport::SendMessage(nonsense->get(), std::as_bytes(std::span(text))).ok());
}

// Sends commands and data that consist of path text after their headers.
void CommandWithPaths(const std::string& address) {
  for (const auto kind : {wire::CommandKind::kExecute, wire::CommandKind::kUpload,
                          wire::CommandKind::kAllocate, wire::CommandKind::kCopy, wire::CommandKind::kNop}) {
    RawSession raw(address);
    struct Text {
      wire::CommandHeader header;
      std::array<char, 248> text;
    } command = {wire::Header(kind, 0, sizeof(Text)), {}};
    Filled(command.text.size()).copy(command.text.data(), command.text.size());
    raw.Send(command);
    raw.Fate();
  }
  RawSession sharing(address);
  transport::Request message;
  const std::string text = Filled(sizeof(message));
  std::memcpy(&message, text.data(), sizeof(message));
  const UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR, 0600));
  sharing.Share(message, file.get());
  sharing.Fate();
}

void ComputeOnPaths(const std::string& address) {
  ConnectOptions options;
  options.address = address;
  const auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok());
  const std::string text = Filled(4096);
  std::vector<float> values(text.size() / sizeof(float));
  std::memcpy(values.data(), text.data(), text.size());
  const Tensor tensor = *Tensor::FromHost((*session)->DefaultQueue(0), std::span<const float>(values),
                                          {static_cast<int64_t>(values.size())});
  EXPECT_TRUE(Mul(tensor, 2.0)->ToFloats().ok());
}

void AskControlWithPaths(const std::string& folder) {
  const UniqueFd control(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {AF_UNIX, {}};
  (folder + "/control.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(connect(control.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string text = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Filled(4096);
  EXPECT_EQ(send(control.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

TEST_F(Opens, NothingThatAClientSendsIsUsedAsAPath) {
  WatchedDaemon daemon(folder_);
  ASSERT_TRUE(daemon.serves());
  ASSERT_THAT(daemon.Paths(), Contains(folder_ + "/xpud.sock.lock")) << "the watch does not see";
  daemon.Forget();
  GreetWithPaths(daemon.socket());
  CommandWithPaths(daemon.socket());
  ComputeOnPaths(daemon.socket());
  AskControlWithPaths(folder_);
  const std::string control = std::filesystem::path(DaemonBinary()).replace_filename("xpuctl").string();
  EXPECT_EQ(system((control + " --address " + daemon.socket() + " status > /dev/null").c_str()), 0);
  const std::vector<std::string> paths = daemon.Paths();
  EXPECT_FALSE(paths.empty()) << "the watch does not see";
  for (const std::string& path : paths) {
    EXPECT_THAT(path, Not(HasSubstr(std::string(kSent).substr(5)))) << "a client's text";
    // Cached kernels are opened by their hash, relative to the cache's descriptor; other paths are the
    // daemon's own.
    const bool kernel = path.find('/') == std::string::npos;
    if (!kernel && !path.empty()) EXPECT_THAT(path, AnyOf(StartsWith("/proc/"), StartsWith("/sys/")));
  }
}

// Shows that the watch works: the paths of the daemon's own command line are reported.
TEST_F(Opens, TheWatchSeesPathsThatAreUsed) {
  const std::string folder = folder_ + kSent;
  std::filesystem::create_directories(folder);
  WatchedDaemon daemon(folder);
  ASSERT_TRUE(daemon.serves());
  EXPECT_THAT(daemon.Paths(), Contains(HasSubstr(kSent)));
}

}  // namespace
}  // namespace xpud::e2e
