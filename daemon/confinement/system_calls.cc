#include "daemon/confinement/system_calls.h"

#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define XPUD_SANITIZED 1
#endif
#endif

namespace xpud::confinement {
namespace {

constexpr uint64_t kAll = ~uint64_t{0}, kInt = 0xffffffff;
constexpr uint64_t kNamespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

// Executors inherit the spawner's filter, so they need an entry in both.
constexpr Roles kExecutors = kExecutor | kSpawner;

// The compiler of clients' kernels reads requests and forks; it opens no sockets and starts no programs.
constexpr Roles kAlsoCompiler = kEverybody | kCompiler;

#define CALL(name) #name, SYS_##name

constexpr SystemCall kAllowed[] = {
    // Memory. Kernels are compiled and run in these processes, so memory may become executable.
    {CALL(brk), kAlsoCompiler},
    {CALL(madvise), kAlsoCompiler},
    {CALL(membarrier)},
    {CALL(memfd_create)},
    {CALL(mlock)},
    {CALL(mlock2)},
    {CALL(mmap), kAlsoCompiler},
    {CALL(mprotect), kAlsoCompiler},
    {CALL(mremap), kAlsoCompiler},
    {CALL(msync)},
    {CALL(munlock)},
    {CALL(munmap), kAlsoCompiler},
    {CALL(get_mempolicy)},
    {CALL(mbind), kExecutors},
    {CALL(set_mempolicy), kExecutors},
    // Descriptors and files. Landlock decides which files.
    {CALL(access), kAlsoCompiler},
    {CALL(chmod), kDaemon},  // claims' doors get their modes
    {CALL(fchmod), kDaemon},
    {CALL(close), kAlsoCompiler},
    {CALL(close_range)},
    {CALL(dup)},
    {CALL(dup2)},
    {CALL(dup3)},
    {CALL(faccessat)},
    {CALL(faccessat2)},
    {CALL(fadvise64)},
    {CALL(fallocate)},
    {CALL(fcntl), kAlsoCompiler},
    {CALL(fdatasync)},
    {CALL(flock)},
    {CALL(fstat), kAlsoCompiler},
    {CALL(fstatfs)},
    {CALL(fsync)},
    {CALL(ftruncate)},
    {CALL(getcwd)},
    {CALL(getdents64)},
    {CALL(lseek), kAlsoCompiler},
    {CALL(lstat)},
    // For claims' doors; Landlock allows no other folder. In executors, CUDA fails to start if this call or
    // unlink fails with EPERM. It tolerates EACCES, which Landlock returns.
    {CALL(mkdir)},
    {CALL(newfstatat), kAlsoCompiler},
    {CALL(open)},
    {CALL(openat), kAlsoCompiler},
    {CALL(pipe)},
    {CALL(pipe2), kAlsoCompiler},
    {CALL(pread64), kAlsoCompiler},
    {CALL(pwrite64)},
    {CALL(read), kAlsoCompiler},
    {CALL(readlink), kAlsoCompiler},
    {CALL(readlinkat)},
    {CALL(readv)},
    {CALL(rename), kDaemon},
    {CALL(renameat), kDaemon},
    {CALL(renameat2), kDaemon},
    {CALL(stat)},
    {CALL(statfs)},
    {CALL(statx)},
    {CALL(rmdir), kDaemon},
    {CALL(umask)},
    {CALL(unlink)},
    {CALL(unlinkat), kDaemon},
    {CALL(utimensat), kDaemon},  // sets the time of last use of cached kernels
    {CALL(write), kAlsoCompiler},
    {CALL(writev), kAlsoCompiler},
    // Drivers of devices. Injecting input into a terminal is refused.
    {CALL(ioctl), kEverybody, {1, kInt, TIOCSTI, false}},
    // Waiting.
    {CALL(clock_getres)},
    {CALL(clock_gettime), kAlsoCompiler},
    {CALL(clock_nanosleep)},
    {CALL(epoll_create1)},
    {CALL(epoll_ctl)},
    {CALL(epoll_pwait)},
    {CALL(epoll_pwait2)},
    {CALL(epoll_wait)},
    {CALL(eventfd2)},
    {CALL(futex), kAlsoCompiler},
    {CALL(gettimeofday)},
    {CALL(nanosleep)},
    {CALL(poll), kAlsoCompiler},
    {CALL(ppoll)},
    {CALL(pselect6)},
    {CALL(restart_syscall), kAlsoCompiler},
    {CALL(select)},
    {CALL(signalfd4)},
    {CALL(time)},
    {CALL(timerfd_create)},
    {CALL(timerfd_gettime)},
    {CALL(timerfd_settime)},
    // Local sockets. The daemon only answers clients that connect; CUDA connects to MPS.
    {CALL(accept4), kDaemon},
    {CALL(bind)},
    {CALL(connect), kExecutors},
    {CALL(getpeername)},
    {CALL(getsockname)},
    {CALL(getsockopt)},
    {CALL(listen)},
    {CALL(recvfrom)},
    {CALL(recvmsg), kAlsoCompiler},
    {CALL(sendmsg), kAlsoCompiler},
    {CALL(sendto)},
    {CALL(setsockopt)},
    {CALL(shutdown)},
    {CALL(socket), kEverybody, {0, kInt, AF_UNIX, true}},
    {CALL(socketpair), kEverybody, {0, kInt, AF_UNIX, true}},
    // Threads and processes.
    {CALL(arch_prctl), kAlsoCompiler},
    {CALL(capget)},
    {CALL(clone), kAlsoCompiler, {0, kNamespaces, 0, true}},
    {CALL(exit), kAlsoCompiler},
    {CALL(exit_group), kAlsoCompiler},
    {CALL(get_robust_list)},
    {CALL(getcpu)},
    {CALL(getegid)},
    {CALL(geteuid), kAlsoCompiler},
    {CALL(getgid)},
    {CALL(getpgrp)},
    {CALL(getpid), kAlsoCompiler},
    {CALL(getpriority)},
    {CALL(getrandom), kAlsoCompiler},
    {CALL(getresgid)},
    {CALL(getresuid)},
    {CALL(getrlimit)},
    {CALL(getrusage)},
    {CALL(gettid), kAlsoCompiler},
    {CALL(getuid), kAlsoCompiler},
    {CALL(getppid)},
    {CALL(pidfd_open)},
    {CALL(pidfd_send_signal)},
    {CALL(prctl), kAlsoCompiler, {0, kInt, PR_SET_NAME, true}},
    {CALL(prctl), kEverybody, {0, kInt, PR_GET_NAME, true}},
    {CALL(prctl), kEverybody, {0, kInt, PR_SET_PDEATHSIG, true}},
    {CALL(prctl), kEverybody, {0, kInt, PR_SET_VMA, true}},
    {CALL(prctl), kEverybody, {0, kInt, PR_GET_DUMPABLE, true}},
    {CALL(prctl), kSpawner, {0, kInt, PR_SET_NO_NEW_PRIVS, true}},
    {CALL(prlimit64), kEverybody, {2, kAll, 0, true}},  // reading limits only
    {CALL(prlimit64), kCompiler, {0, kInt, 0, true}},   // lowers its own before it compiles
    {CALL(setitimer), kCompiler},                       // ends itself
    {CALL(rseq), kAlsoCompiler},
    {CALL(rt_sigaction), kAlsoCompiler},
    {CALL(rt_sigpending)},
    {CALL(rt_sigprocmask), kAlsoCompiler},
    {CALL(rt_sigreturn), kAlsoCompiler},
    {CALL(rt_sigsuspend)},
    {CALL(rt_sigtimedwait)},
    {CALL(sched_get_priority_max)},
    {CALL(sched_get_priority_min)},
    {CALL(sched_getaffinity), kAlsoCompiler},
    {CALL(sched_getattr)},
    {CALL(sched_getparam)},
    {CALL(sched_getscheduler)},
    {CALL(sched_setaffinity)},
    {CALL(sched_yield), kAlsoCompiler},
    {CALL(set_robust_list), kAlsoCompiler},
    {CALL(set_tid_address), kAlsoCompiler},
    {CALL(setpriority)},
    {CALL(setpriority), kCompiler, {1, kInt, 0, true}},  // lowers its own
    {CALL(sigaltstack), kAlsoCompiler},
    {CALL(sysinfo), kAlsoCompiler},
    {CALL(tgkill), kAlsoCompiler},
    {CALL(times)},
    {CALL(uname), kAlsoCompiler},
    {CALL(wait4), kAlsoCompiler},
    {CALL(waitid)},
    // The spawner alone starts executors, which confine themselves further.
    {CALL(execve), kSpawner},
    {CALL(landlock_add_rule), kSpawner},
    {CALL(landlock_create_ruleset), kSpawner},
    {CALL(landlock_restrict_self), kSpawner},
    {CALL(seccomp), kSpawner},
#ifdef XPUD_SANITIZED  // LeakSanitizer inspects the process from a child, and the symbolizer is a separate
                       // program
    {CALL(ptrace)},
    {CALL(execve)},
    {CALL(process_vm_readv)},
    {CALL(prctl)},
    {CALL(kill)},
    {CALL(setrlimit)},
    {CALL(prlimit64)},
#endif
};

constexpr SystemCall kAbsent[] = {{CALL(clone3)}};

#undef CALL

}  // namespace

std::span<const SystemCall> AllowedCalls() { return kAllowed; }
std::span<const SystemCall> AbsentCalls() { return kAbsent; }

}  // namespace xpud::confinement
