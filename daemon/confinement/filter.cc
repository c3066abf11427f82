#include "daemon/confinement/filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace xpud::confinement {
namespace {

sock_filter Load(size_t offset) { return {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)}; }
sock_filter Return(uint32_t action) { return {BPF_RET | BPF_K, 0, 0, action}; }
sock_filter And(uint32_t mask) { return {BPF_ALU | BPF_AND | BPF_K, 0, 0, mask}; }
// Skips `if_equal` instructions if the loaded word equals `value`, otherwise `if_not`.
sock_filter Compare(uint32_t value, uint8_t if_equal, uint8_t if_not) {
  return {BPF_JMP | BPF_JEQ | BPF_K, if_equal, if_not, value};
}
sock_filter LoadNumber() { return Load(offsetof(seccomp_data, nr)); }

uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

// Allows the call if the argument meets the condition; otherwise reloads the call's number and continues.
std::vector<sock_filter> Check(const Condition& condition) {
  const size_t low =
      offsetof(seccomp_data, args) + static_cast<size_t>(condition.argument) * sizeof(uint64_t);
  const bool equal = condition.equal;
  return {Load(low),
          And(Low(condition.mask)),
          Compare(Low(condition.value), 0, equal ? 4 : 3),
          Load(low + sizeof(uint32_t)),
          And(High(condition.mask)),
          Compare(High(condition.value), equal ? 0 : 1, equal ? 1 : 0),
          Return(SECCOMP_RET_ALLOW),
          LoadNumber()};
}

void Append(const std::vector<sock_filter>& more, std::vector<sock_filter>& program) {
  program.insert(program.end(), more.begin(), more.end());
}

void AddCall(const SystemCall& call, uint32_t action, std::vector<sock_filter>& program) {
  const std::vector<sock_filter> then =
      call.condition.argument < 0 ? std::vector{Return(action)} : Check(call.condition);
  program.push_back(Compare(static_cast<uint32_t>(call.number), 0, static_cast<uint8_t>(then.size())));
  Append(then, program);
}

}  // namespace

std::vector<sock_filter> AssembleFilter(Roles role, Refusal refusal) {
  std::vector<sock_filter> program = {Load(offsetof(seccomp_data, arch)), Compare(AUDIT_ARCH_X86_64, 1, 0),
                                      Return(SECCOMP_RET_KILL_PROCESS), LoadNumber()};
  for (const SystemCall& call : AllowedCalls())
    if ((call.roles & role) != 0) AddCall(call, SECCOMP_RET_ALLOW, program);
  for (const SystemCall& call : AbsentCalls()) AddCall(call, SECCOMP_RET_ERRNO | ENOSYS, program);
  program.push_back(Return(refusal == Refusal::kLog ? SECCOMP_RET_LOG : SECCOMP_RET_ERRNO | EPERM));
  return program;
}

absl::Status InstallFilter(Roles role, Refusal refusal) {
  std::vector<sock_filter> instructions = AssembleFilter(role, refusal);
  const sock_fprog program = {static_cast<unsigned short>(instructions.size()), instructions.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return absl::ErrnoToStatus(errno, "prctl(PR_SET_NO_NEW_PRIVS) failed");
  // The filter applies to all threads; the kernel's log shows refused calls.
  constexpr unsigned kFlags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_LOG;
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kFlags, &program) != 0)
    return absl::ErrnoToStatus(errno, "seccomp failed");
  return absl::OkStatus();
}

}  // namespace xpud::confinement
