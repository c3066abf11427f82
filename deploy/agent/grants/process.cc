#include "deploy/agent/grants/process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"

namespace xpud::agent {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The pid in our namespace: 0 if the process is not in it, -1 if it has ended.
pid_t PidOf(const UniqueFd& process) {
  for (absl::string_view line :
       absl::StrSplit(ReadText(absl::StrCat("/proc/self/fdinfo/", process.get())), '\n')) {
    pid_t pid = 0;
    if (absl::ConsumePrefix(&line, "Pid:") && absl::SimpleAtoi(line, &pid)) return pid;
  }
  return 0;
}

bool HasEnded(const UniqueFd& process) {
  pollfd watched = {process.get(), POLLIN, 0};
  return poll(&watched, 1, 0) != 0;
}

// Returns "" if there is no such process.
std::string StartOf(pid_t pid) {
  constexpr size_t kStartTime =
      19;  // field 22 of proc(5); the name, field 2, may contain anything but its end
  const std::string text = ReadText(absl::StrCat("/proc/", pid, "/stat"));
  const size_t end = text.rfind(')');
  if (end == text.npos || end + 2 > text.size()) return "";
  const std::vector<absl::string_view> fields = absl::StrSplit(absl::string_view(text).substr(end + 2), ' ');
  if (fields.size() <= kStartTime) return "";
  const std::string boot = ReadText("/proc/sys/kernel/random/boot_id");
  return absl::StrCat(boot.substr(0, 8), "-", fields[kStartTime]);
}

// The groups of the process that has connected, but for its effective one.
absl::StatusOr<std::vector<gid_t>> PeerGroupsOf(int socket) {
  constexpr int kPeerGroups = 59;  // SO_PEERGROUPS of Linux 4.13
  std::vector<gid_t> groups;
  socklen_t bytes = 0;
  // They do not change any more: the second call has the room that the first one has asked for.
  while (getsockopt(socket, SOL_SOCKET, kPeerGroups, groups.data(), &bytes) != 0) {
    if (errno != ERANGE || bytes <= groups.size() * sizeof(gid_t)) return DescriptorError("SO_PEERGROUPS");
    groups.resize(bytes / sizeof(gid_t));
  }
  groups.resize(bytes / sizeof(gid_t));
  return groups;
}

}  // namespace

absl::StatusOr<Caller> CallerAt(int socket) {
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD of Linux 6.5, which is newer than the headers
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return DescriptorError("SO_PEERCRED");
  ASSIGN_OR_RETURN(const std::vector<gid_t> others, PeerGroupsOf(socket));
  Caller caller{peer.uid, {peer.gid}};
  caller.groups.insert(caller.groups.end(), others.begin(), others.end());
  int process = -1;
  length = sizeof(process);
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &process, &length) == 0) {
    caller.process.Reset(process);
  } else if (errno != ENOPROTOOPT && errno != ESRCH && errno != EINVAL) {
    return DescriptorError("SO_PEERPIDFD");
  }
  return caller;
}

absl::StatusOr<ProcessName> NameOf(const UniqueFd& process) {
  if (!process.valid()) {
    return absl::FailedPreconditionError(
        "the kernel does not say which process has connected; it needs Linux 6.5: use a lease instead");
  }
  ProcessName name;
  name.pid = PidOf(process);
  if (name.pid == 0) {
    return absl::FailedPreconditionError(
        "the agent does not see the process, which is in another pid namespace; run the agent in the host's "
        "pid "
        "namespace (hostPID), or use a lease instead");
  }
  if (name.pid > 0) name.started = StartOf(name.pid);
  // Only now is it known that what was read is of this process and not of a later one.
  if (HasEnded(process) || name.pid < 0)
    return absl::FailedPreconditionError("the process that has connected has ended");
  if (name.started.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the agent cannot read /proc/", name.pid, "/stat; use a lease instead"));
  }
  return name;
}

absl::StatusOr<UniqueFd> OpenProcess(const ProcessName& name) {
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, name.pid, 0)));
  if (!process.valid() && errno != ESRCH && errno != EINVAL) return DescriptorError("pidfd_open");
  if (!process.valid() || StartOf(name.pid) != name.started || HasEnded(process))
    return absl::NotFoundError(absl::StrCat("process ", name.pid, " has ended"));
  return process;
}

}  // namespace xpud::agent
