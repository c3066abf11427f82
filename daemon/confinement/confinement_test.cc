// Attempts of a confined process fail. Each attempt runs in a child process. As root, it runs once more in an
// unconfined child, to show that the confinement is what refuses it.
#include "daemon/confinement/confinement.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::confinement {
namespace {

// Runs `body` in a child. Returns its errno, or 0.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

struct Attempt {
  const char* what;
  long number;
  std::array<long, 4> arguments = {};  // arguments with which the call has no effect
};

int Make(const Attempt& attempt) {
  const auto& [a, b, c, d] = attempt.arguments;
  errno = 0;
  return syscall(attempt.number, a, b, c, d, 0, 0) == -1 ? errno : 0;
}

int MakeConfined(const Attempt& attempt, Roles role) {
  return InChild([&] { return InstallFilter(role, Refusal::kError).ok() ? Make(attempt) : 200; });
}

// Refused to every process of xpud.
const Attempt kRefusedToAll[] = {
    {"execveat", SYS_execveat, {-1}},
    {"ptrace", SYS_ptrace, {2, -1}},
    {"process_vm_readv", SYS_process_vm_readv, {-1}},
    {"process_vm_writev", SYS_process_vm_writev, {-1}},
    {"init_module", SYS_init_module},
    {"finit_module", SYS_finit_module, {-1}},
    {"delete_module", SYS_delete_module},
    {"kexec_load", SYS_kexec_load, {0, 99, 0, -1}},
    {"add_key", SYS_add_key},
    {"request_key", SYS_request_key},
    {"keyctl", SYS_keyctl, {-1}},
    {"bpf", SYS_bpf, {-1}},
    {"perf_event_open", SYS_perf_event_open},
    {"userfaultfd", SYS_userfaultfd, {-1}},
    {"io_uring_setup", SYS_io_uring_setup},
    {"mount", SYS_mount},
    {"umount2", SYS_umount2},
    {"move_mount", SYS_move_mount, {-1, 0, -1}},
    {"fsopen", SYS_fsopen},
    {"open_tree", SYS_open_tree, {-1}},
    {"pivot_root", SYS_pivot_root},
    {"chroot", SYS_chroot},
    {"unshare", SYS_unshare, {1}},
    {"setns", SYS_setns, {-1}},
    {"setuid", SYS_setuid, {-1}},
    {"setgid", SYS_setgid, {-1}},
    {"setreuid", SYS_setreuid, {-2, -2}},
    {"setresuid", SYS_setresuid, {-2, -2, -2}},
    {"setgroups", SYS_setgroups, {-1}},
    {"setfsuid", SYS_setfsuid, {-1}},
    {"capset", SYS_capset},
    {"personality", SYS_personality, {0xffffffff}},
    {"open_by_handle_at", SYS_open_by_handle_at, {-1}},
    {"name_to_handle_at", SYS_name_to_handle_at, {-1}},
    {"pidfd_getfd", SYS_pidfd_getfd, {-1}},
    {"kcmp", SYS_kcmp, {-1}},
    {"memfd_secret", SYS_memfd_secret, {-1}},
    {"mknod", SYS_mknod},
    {"chown", SYS_chown},
    {"setxattr", SYS_setxattr},
    {"symlink", SYS_symlink},
    {"link", SYS_link},
    {"chdir", SYS_chdir},
    {"quotactl", SYS_quotactl, {-1}},
    {"acct", SYS_acct, {1}},
    {"swapon", SYS_swapon},
    {"swapoff", SYS_swapoff},
    {"reboot", SYS_reboot},
    {"sethostname", SYS_sethostname, {0, -1}},
    {"syslog", SYS_syslog, {-1}},
    {"clock_settime", SYS_clock_settime, {99}},
    {"settimeofday", SYS_settimeofday, {1}},
    {"adjtimex", SYS_adjtimex},
    {"iopl", SYS_iopl, {4}},
    {"ioperm", SYS_ioperm, {0, -1, 1}},
    {"modify_ldt", SYS_modify_ldt, {99}},
    {"kill", SYS_kill, {0x7ffffffe, 0}},
    {"setrlimit", SYS_setrlimit, {99}},
    {"prlimit64 that sets", SYS_prlimit64, {0, 99, 1}},
    {"prctl that makes dumpable", SYS_prctl, {PR_SET_DUMPABLE, 99}},
    {"ioctl that types into a terminal", SYS_ioctl, {-1, TIOCSTI}},
    {"ioctl so, with more bits", SYS_ioctl, {-1, static_cast<long>((uint64_t{1} << 32) | TIOCSTI)}},
    {"clone of a user namespace", SYS_clone, {CLONE_NEWUSER | CLONE_FS}},
    {"clone of a network", SYS_clone, {CLONE_NEWNET | CLONE_SIGHAND}},
    {"IPv4", SYS_socket, {AF_INET, SOCK_STREAM}},
    {"IPv6", SYS_socket, {AF_INET6, SOCK_DGRAM}},
    {"netlink", SYS_socket, {AF_NETLINK, SOCK_RAW}},
    {"packets", SYS_socket, {AF_PACKET, SOCK_RAW}},
    {"a number that is no call", 700},
    {"x32's getpid", 0x40000000 + SYS_getpid},
};

// Refused to the compiler of clients' kernels, which has data of one client in each fork.
const Attempt kRefusedToTheCompiler[] = {
    {"execve", SYS_execve},
    {"socket", SYS_socket, {AF_UNIX, SOCK_STREAM}},
    {"connect", SYS_connect, {-1}},
    {"bind", SYS_bind, {-1}},
    {"ioctl", SYS_ioctl, {-1}},
    {"unlink", SYS_unlink},
    {"mkdir", SYS_mkdir},
    {"pidfd_open", SYS_pidfd_open, {-1}},
    {"pidfd_send_signal", SYS_pidfd_send_signal, {-1}},
    {"memfd_create", SYS_memfd_create, {0, 99}},
};

// Allowed to the spawner only, which starts executors.
const Attempt kSpawnersAlone[] = {
    {"execve", SYS_execve},
    {"seccomp", SYS_seccomp, {99}},
    {"landlock_create_ruleset", SYS_landlock_create_ruleset, {0, 0, 99}},
};

TEST(Filter, RefusesWhatServingDoesNotTake) {
  for (const Attempt& attempt : kRefusedToAll)
    for (const Roles role : {kDaemon, kExecutor, kSpawner}) {
      EXPECT_EQ(MakeConfined(attempt, role), EPERM) << attempt.what << " as " << role;
    }
  for (const Attempt& attempt : kSpawnersAlone) {
    EXPECT_EQ(MakeConfined(attempt, kDaemon), EPERM) << attempt.what;
    EXPECT_EQ(MakeConfined(attempt, kExecutor), EPERM) << attempt.what;
    EXPECT_NE(MakeConfined(attempt, kSpawner), EPERM) << attempt.what;
  }
}

TEST(Filter, TheCompilerHasLessThanTheOthers) {
  for (const Attempt& attempt : kRefusedToTheCompiler)
    EXPECT_EQ(MakeConfined(attempt, kCompiler), EPERM) << attempt.what;
}

// For claims' doors; Landlock says where.
TEST(Filter, TheDaemonAloneRemovesFoldersAndSetsModes) {
  const Attempt making = {"mkdir", SYS_mkdir};
  EXPECT_EQ(MakeConfined(making, kDaemon), EFAULT);
  EXPECT_EQ(MakeConfined(making, kExecutor), EFAULT);
  for (const Attempt& attempt : {Attempt{"rmdir", SYS_rmdir}, Attempt{"chmod", SYS_chmod}}) {
    EXPECT_EQ(MakeConfined(attempt, kDaemon), EFAULT) << attempt.what;
    EXPECT_EQ(MakeConfined(attempt, kExecutor), EPERM) << attempt.what;
    EXPECT_EQ(MakeConfined(attempt, kSpawner), EPERM) << attempt.what;
  }
  const Attempt of_open = {"fchmod", SYS_fchmod, {-1}};
  EXPECT_EQ(MakeConfined(of_open, kDaemon), EBADF);
  EXPECT_EQ(MakeConfined(of_open, kExecutor), EPERM);
}

TEST(Filter, TheDaemonConnectsToNobodyAndAnExecutorAcceptsNobody) {
  const Attempt connecting = {"connect", SYS_connect, {-1}}, accepting = {"accept4", SYS_accept4, {-1}};
  EXPECT_EQ(MakeConfined(connecting, kDaemon), EPERM);
  EXPECT_EQ(MakeConfined(connecting, kExecutor), EBADF);  // CUDA's MPS
  EXPECT_EQ(MakeConfined(accepting, kDaemon), EBADF);
  EXPECT_EQ(MakeConfined(accepting, kExecutor), EPERM);
}

TEST(Filter, ItIsTheFilterThatRefuses) {
  if (geteuid() != 0) GTEST_SKIP() << "the kernel itself refuses much of it to who is not root";
  for (const Attempt& attempt : kRefusedToAll) {
    const int found = InChild([&] { return Make(attempt); });
    EXPECT_NE(found, EPERM) << attempt.what;
    EXPECT_LT(found, 1000) << attempt.what;
  }
}

TEST(Filter, WhatLogsRefusesNothing) {
  EXPECT_EQ(
      InChild([] { return InstallFilter(kDaemon, Refusal::kLog).ok() ? Make({"chroot", SYS_chroot}) : 200; }),
      EFAULT);
}

TEST(Filter, CountsForThreadsThatWereThere) {
  EXPECT_EQ(InChild([] {
              std::atomic<int> found{-1};
              std::atomic<bool> confined{false};
              std::thread earlier([&] {
                while (!confined.load()) std::this_thread::yield();
                found.store(Make({"chroot", SYS_chroot}));
              });
              if (!InstallFilter(kDaemon, Refusal::kError).ok()) return 200;
              confined.store(true);
              earlier.join();
              return found.load();
            }),
            EPERM);
}

TEST(Filter, ThreadsAndMemoryThatIsCodeRemain) {
  EXPECT_EQ(InChild([] {
              if (!InstallFilter(kDaemon, Refusal::kError).ok()) return 200;
              int value = 0;
              std::thread([&] { value = 42; }).join();
              void* const code =
                  mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              std::memcpy(code, "\xb8\x07\x00\x00\x00\xc3", 6);  // mov eax, 7; ret
              if (mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0) return 201;
              return value == 42 ? reinterpret_cast<int (*)()>(code)() : 202;
            }),
            7);
}

TEST(Table, EachCallStandsForOneNumberAndExecutorsMayNoMoreThanTheirSpawner) {
  std::set<std::string_view> names;
  for (const SystemCall& call : AllowedCalls()) {
    EXPECT_TRUE(names.insert(call.name).second || call.condition.argument >= 0)
        << call.name << " is there twice";
    EXPECT_TRUE((call.roles & kExecutor) == 0 || (call.roles & kSpawner) != 0) << call.name;
  }
}

class Files : public ::testing::Test {
 protected:
  Files() {
    char pattern[] = "/tmp/xpud-confined-XXXXXX";
    top_ = mkdtemp(pattern);
    for (const char* name : {"cache", "socket", "socket/claims", "other", "state"})
      std::filesystem::create_directory(top_ + "/" + name);
    for (const char* name : {"cache/kernel", "socket/secret", "other/secret"})
      std::ofstream(top_ + "/" + name) << "text";
  }
  ~Files() override { std::filesystem::remove_all(top_); }
  void SetUp() override {
    if (syscall(SYS_landlock_create_ruleset, nullptr, 0, 1) < 1)
      GTEST_SKIP() << "this kernel has no Landlock";
  }

  // Returns the errno of `attempt` in a process that is confined like the daemon.
  int Confined(const std::function<int()>& attempt) const {
    return InChild([&] {
      std::string in_force;
      ConfineFiles(Mode::kOn,
                   {.cache_directory = top_ + "/cache",
                    .socket_directory = top_ + "/socket",
                    .driver_library = "",
                    .state_directory = top_ + "/state",
                    .door_directories = {top_ + "/socket/claims"}},
                   in_force);
      if (in_force.find("landlock=on") == std::string::npos) return 200;
      errno = 0;
      return attempt() >= 0 ? 0 : errno;
    });
  }
  int Opening(const std::string& path, int flags) const {
    return Confined([&] { return open(path.c_str(), flags, 0600); });
  }

  std::string top_;
};

TEST_F(Files, WhatIsNeededIsOpened) {
  for (const char* path :
       {"/usr/lib/os-release", "/proc/self/status", "/proc/cpuinfo", "/sys/class", "/proc/self/exe"})
    EXPECT_EQ(Opening(path, O_RDONLY), 0) << path;
  EXPECT_EQ(Opening("/dev/null", O_RDWR), 0);
  EXPECT_EQ(Opening(top_ + "/cache/kernel", O_RDWR), 0);
  EXPECT_EQ(Opening(top_ + "/cache/another", O_WRONLY | O_CREAT | O_EXCL), 0);
  EXPECT_EQ(Confined([&] { return rename((top_ + "/cache/kernel").c_str(), (top_ + "/cache/k2").c_str()); }),
            0);
}

TEST_F(Files, FoldersAreMadeForClaimsOnly) {
  const auto make_and_remove = [this](const std::string& folder) {
    return Confined([&] {
      const int made = mkdir((top_ + folder).c_str(), 0700);
      return made != 0 ? made : rmdir((top_ + folder).c_str());
    });
  };
  EXPECT_EQ(make_and_remove("/socket/claims/web"), 0);
  for (const char* folder :
       {"/socket/web", "/cache/web", "/state/web", "/other/web", "/socket/claims/../web"})
    EXPECT_EQ(make_and_remove(folder), EACCES) << folder;
  EXPECT_EQ(Confined([&] { return rmdir((top_ + "/other").c_str()); }), EACCES);
  EXPECT_EQ(Opening(top_ + "/socket/claims/file", O_WRONLY | O_CREAT), EACCES);
  EXPECT_EQ(Opening(top_ + "/state/web.claim", O_WRONLY | O_CREAT), 0);
}

TEST_F(Files, NothingElseIsOpened) {
  for (const char* path :
       {"/etc/passwd", "/etc/hostname", "/root", "/home", "/var/log", "/dev/mem", "/dev/tty"}) {
    if (access(path, R_OK) == 0) EXPECT_EQ(Opening(path, O_RDONLY), EACCES) << path;
  }
  EXPECT_EQ(Opening(top_ + "/other/secret", O_RDONLY), EACCES);
  EXPECT_EQ(Opening(top_ + "/other/new", O_WRONLY | O_CREAT), EACCES);
  EXPECT_EQ(Opening(top_ + "/socket/secret", O_WRONLY), EACCES);
  EXPECT_EQ(Opening(top_ + "/socket/new", O_WRONLY | O_CREAT), EACCES);
  EXPECT_EQ(Opening(std::filesystem::canonical("/proc/self/exe").string() + ".new", O_WRONLY | O_CREAT),
            EACCES);
  EXPECT_EQ(Opening("/proc/self/comm", O_WRONLY), EACCES);
  EXPECT_EQ(Confined([&] { return symlink("/", (top_ + "/cache/link").c_str()); }), EACCES);
  EXPECT_EQ(Confined([&] { return mkdir((top_ + "/cache/folder").c_str(), 0700); }), EACCES);
  EXPECT_EQ(Confined([&] { return mkfifo((top_ + "/cache/fifo").c_str(), 0600); }), EACCES);
  EXPECT_EQ(Confined([&] { return rename((top_ + "/cache/kernel").c_str(), (top_ + "/other/k").c_str()); }),
            EACCES);
}

TEST_F(Files, LibrariesAreReadWhereTheEnvironmentSaysTheyAre) {
  const auto reading_with = [this](const char* variable, const std::string& value) {
    return InChild([&] {
      setenv(variable, value.c_str(), 1);
      if (chdir(top_.c_str()) != 0) return 201;
      std::string in_force;
      ConfineFiles(Mode::kOn, {"", "", ""}, in_force);
      return open((top_ + "/other/secret").c_str(), O_RDONLY) >= 0 ? 0 : errno;
    });
  };
  EXPECT_EQ(reading_with("LD_LIBRARY_PATH", "/usr:" + top_ + "/other"), 0);
  EXPECT_EQ(reading_with("LD_LIBRARY_PATH", "cache:other"), 0);
  EXPECT_EQ(reading_with("XPUD_CUDA_LIBRARY", "other/libcuda.so"), 0);
  EXPECT_EQ(reading_with("XPUD_CUBLASLT", top_ + "/other/libcublasLt.so.13"), 0);
  EXPECT_EQ(reading_with("XPUD_CUDA_LIBRARY", "libcuda.so.1"), EACCES);
  EXPECT_EQ(reading_with("LD_LIBRARY_PATH", ""), EACCES);
}

TEST_F(Files, SocketsAreMadeInTheirFolderAlone) {
  const auto bind_at = [this](const std::string& path) {
    return Confined([&] {
      sockaddr_un address = {AF_UNIX, {}};
      path.copy(address.sun_path, sizeof(address.sun_path) - 1);
      return bind(socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&address),
                  sizeof(address));
    });
  };
  EXPECT_EQ(bind_at(top_ + "/socket/xpud.sock"), 0);
  EXPECT_EQ(bind_at(top_ + "/cache/xpud.sock"), EACCES);
  EXPECT_EQ(Confined([&] { return unlink((top_ + "/socket/xpud.sock").c_str()); }), 0);
}

TEST_F(Files, ThreadsAreNamedWhereThatIsAllowedAndThoseOfThisProcessAlone) {
  using Processes = FilesOptions::Processes;
  const std::string parent = absl::StrCat("/proc/", getpid(), "/task/", getpid(), "/comm");
  const auto naming = [](Processes processes, std::string_view of) {
    return InChild([&] {
      FilesOptions options;
      options.processes = processes;
      std::string in_force;
      ConfineFiles(Mode::kOn, options, in_force);
      const std::string own = absl::StrCat("/proc/self/task/", gettid(), "/comm");
      return open(of.empty() ? own.c_str() : std::string(of).c_str(), O_WRONLY) >= 0 ? 0 : errno;
    });
  };
  EXPECT_EQ(naming(Processes::kNone, ""), EACCES);
  EXPECT_EQ(naming(Processes::kOwn, ""), 0);
  EXPECT_EQ(naming(Processes::kOwn, parent), EACCES);
}

TEST_F(Files, OnlyThisBinaryIsRun) {
  const auto run = [](const char* path) {
    const char* const arguments[] = {"xpud", "--gtest_list_tests", nullptr};
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    return execv(path, const_cast<char* const*>(arguments));
  };
  EXPECT_EQ(Confined([&] { return run("/proc/self/exe"); }), 0);
  EXPECT_EQ(Confined([&] { return run("/bin/true"); }), EACCES);
}

TEST_F(Files, ProcessesOutsideGetNoSignals) {
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, 1) < 6)
    GTEST_SKIP() << "Landlock before its version 6";
  EXPECT_EQ(Confined([] { return kill(getppid(), 0); }), EPERM);
  EXPECT_EQ(Confined([] { return kill(getpid(), 0); }), 0);
}

TEST_F(Files, WhatIsSwitchedOffRefusesNothing) {
  for (const Mode mode : {Mode::kOff, Mode::kLog}) {
    EXPECT_EQ(InChild([&] {
                std::string in_force;
                ConfineFiles(mode, {"", "", ""}, in_force);
                return open((top_ + "/other/secret").c_str(), O_RDWR) >= 0 ? 0 : errno;
              }),
              0);
  }
}

}  // namespace
}  // namespace xpud::confinement
