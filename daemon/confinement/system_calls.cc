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

#define CALL(name) #name, SYS_##name

constexpr SystemCall kAllowed[] = {
    // Memory. Kernels are compiled and run in these processes, so memory may become executable.
    {CALL(brk)},
    {CALL(madvise)},
    {CALL(membarrier)},
    {CALL(memfd_create)},
    {CALL(mlock)},
    {CALL(mlock2)},
    {CALL(mmap)},
    {CALL(mprotect)},
    {CALL(mremap)},
    {CALL(msync)},
    {CALL(munlock)},
    {CALL(munmap)},
    {CALL(get_mempolicy)},
    {CALL(mbind), kExecutors},
    {CALL(set_mempolicy), kExecutors},
    // Descriptors and files. Landlock decides which files.
    {CALL(access)},
    {CALL(chmod), kDaemon},  // claims' doors get their modes
    {CALL(fchmod), kDaemon},
    {CALL(close)},
    {CALL(close_range)},
    {CALL(dup)},
    {CALL(dup2)},
    {CALL(dup3)},
    {CALL(faccessat)},
    {CALL(faccessat2)},
    {CALL(fadvise64)},
    {CALL(fallocate)},
    {CALL(fcntl)},
    {CALL(fdatasync)},
    {CALL(flock)},
    {CALL(fstat)},
    {CALL(fstatfs)},
    {CALL(fsync)},
    {CALL(ftruncate)},
    {CALL(getcwd)},
    {CALL(getdents64)},
    {CALL(lseek)},
    {CALL(lstat)},
    // For claims' doors; Landlock allows no other folder. In executors, CUDA fails to start if this call or
    // unlink fails with EPERM. It tolerates EACCES, which Landlock returns.
    {CALL(mkdir)},
    {CALL(newfstatat)},
    {CALL(open)},
    {CALL(openat)},
    {CALL(pipe)},
    {CALL(pipe2)},
    {CALL(pread64)},
    {CALL(pwrite64)},
    {CALL(read)},
    {CALL(readlink)},
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
    {CALL(write)},
    {CALL(writev)},
    // Drivers of devices. Injecting input into a terminal is refused.
    {CALL(ioctl), kEverybody, {1, kInt, TIOCSTI, false}},
    // Waiting.
    {CALL(clock_getres)},
    {CALL(clock_gettime)},
    {CALL(clock_nanosleep)},
    {CALL(epoll_create1)},
    {CALL(epoll_ctl)},
    {CALL(epoll_pwait)},
    {CALL(epoll_pwait2)},
    {CALL(epoll_wait)},
    {CALL(eventfd2)},
    {CALL(futex)},
    {CALL(gettimeofday)},
    {CALL(nanosleep)},
    {CALL(poll)},
    {CALL(ppoll)},
    {CALL(pselect6)},
    {CALL(restart_syscall)},
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
    {CALL(recvmsg)},
    {CALL(sendmsg)},
    {CALL(sendto)},
    {CALL(setsockopt)},
    {CALL(shutdown)},
    {CALL(socket), kEverybody, {0, kInt, AF_UNIX, true}},
    {CALL(socketpair), kEverybody, {0, kInt, AF_UNIX, true}},
    // Threads and processes.
    {CALL(arch_prctl)},
    {CALL(capget)},
    {CALL(clone), kEverybody, {0, kNamespaces, 0, true}},
    {CALL(exit)},
    {CALL(exit_group)},
    {CALL(get_robust_list)},
    {CALL(getcpu)},
    {CALL(getegid)},
    {CALL(geteuid)},
    {CALL(getgid)},
    {CALL(getpgrp)},
    {CALL(getpid)},
    {CALL(getpriority)},
    {CALL(getrandom)},
    {CALL(getresgid)},
    {CALL(getresuid)},
    {CALL(getrlimit)},
    {CALL(getrusage)},
    {CALL(gettid)},
    {CALL(getuid)},
    {CALL(getppid)},
    {CALL(pidfd_open)},
    {CALL(pidfd_send_signal)},
    {CALL(prctl), kEverybody, {0, kInt, PR_SET_NAME, true}},
    {CALL(prctl), kEverybody, {0, kInt, PR_GET_NAME, true}},
    {CALL(prctl), kEverybody, {0, kInt, PR_SET_PDEATHSIG, true}},
    {CALL(prctl), kEverybody, {0, kInt, PR_SET_VMA, true}},
    {CALL(prctl), kEverybody, {0, kInt, PR_GET_DUMPABLE, true}},
    {CALL(prctl), kSpawner, {0, kInt, PR_SET_NO_NEW_PRIVS, true}},
    {CALL(prlimit64), kEverybody, {2, kAll, 0, true}},  // reading limits only
    {CALL(rseq)},
    {CALL(rt_sigaction)},
    {CALL(rt_sigpending)},
    {CALL(rt_sigprocmask)},
    {CALL(rt_sigreturn)},
    {CALL(rt_sigsuspend)},
    {CALL(rt_sigtimedwait)},
    {CALL(sched_get_priority_max)},
    {CALL(sched_get_priority_min)},
    {CALL(sched_getaffinity)},
    {CALL(sched_getattr)},
    {CALL(sched_getparam)},
    {CALL(sched_getscheduler)},
    {CALL(sched_setaffinity)},
    {CALL(sched_yield)},
    {CALL(set_robust_list)},
    {CALL(set_tid_address)},
    {CALL(setpriority)},
    {CALL(sigaltstack)},
    {CALL(sysinfo)},
    {CALL(tgkill)},
    {CALL(times)},
    {CALL(uname)},
    {CALL(wait4)},
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
