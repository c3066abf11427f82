// Checks the kernel, its limits, the processor and the cache folder.
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/base/unique_fd.h"
#include "tools/xpuctl/checks.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

Check Need(const char* name, bool there, Health otherwise, const char* remedy) {
  return there ? Check{name, Health::kOk, "available", ""} : Check{name, otherwise, "missing", remedy};
}

bool SealsMemory() {
  const UniqueFd memory(memfd_create("xpuctl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  return memory.valid() && fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

bool HasPidfds() { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))).valid(); }

Check Landlock() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version >= 1) return {"landlock", Health::kOk, absl::StrCat("version ", version), ""};
  return {"landlock", Health::kWarn, "missing: the daemon's file access is not confined",
          "boot Linux 5.13 or later with lsm=...,landlock"};
}

bool HasBarrier() {
  const long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  return commands >= 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
}

// A daemon raises its limit to the hard limit.
uint64_t FileLimit(const std::optional<v1::Daemon>& daemon) {
  if (daemon && daemon->has_file_limit()) return daemon->file_limit();
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max;
}

Check OpenFiles(const std::optional<v1::Daemon>& daemon) {
  const uint64_t most = FileLimit(daemon);
  constexpr uint64_t kOwn = 64, kEach = 9;  // descriptors of the daemon, and of a session without GPUs
  const uint64_t sessions = most > kOwn ? (most - kOwn) / kEach : 0;
  Check check = {
      "open files", Health::kOk,
      absl::StrCat(daemon ? "the daemon's limit is " : "at most ", most, ": about ", sessions, " sessions"),
      ""};
  if (sessions >= 100) return check;
  check.health = sessions == 0 ? Health::kFail : Health::kWarn;
  check.remedy = "raise the hard limit: ulimit -Hn, or LimitNOFILE= of the unit";
  return check;
}

Check Mappings() {
  uint64_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  Check check = {"mappings", Health::kOk, absl::StrCat("vm.max_map_count is ", most), ""};
  if (most >= 65530) return check;
  check.health = Health::kWarn;
  check.remedy = "a session takes several: sysctl vm.max_map_count=65530";
  return check;
}

Check Memory() {
  uint64_t kibibytes = 0;
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    if (word == "MemAvailable:") file >> kibibytes;
  }
  Check check = {"memory", Health::kOk, Bytes(static_cast<double>(kibibytes) * 1024) + " available", ""};
  if (kibibytes >= 1 << 20) return check;
  check.health = Health::kWarn;
  check.remedy = "the CPU device and shared memory need it: end programs that use much";
  return check;
}

// Reports whether the kernel uses huge pages for shared memory.
Check HugePages() {
  std::string line;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/shmem_enabled"), line);
  const size_t open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos)
    return {"huge shm", Health::kOk, "this kernel has no huge pages for shared memory", ""};
  Check check = {"huge shm", Health::kOk, line.substr(open + 1, close - open - 1), ""};
  if (check.found != "never" && check.found != "deny") return check;
  check.health = Health::kWarn;
  check.remedy =
      "shared memory of the CPU device is in small pages, which is slower: "
      "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
  return check;
}

FolderFacts LookAt(const std::string& path, uid_t owner) {
  FolderFacts facts = {.path = path};
  struct stat info;
  struct statvfs room;
  if (stat(path.c_str(), &info) != 0) return facts;
  facts.exists = true;
  facts.mine = info.st_uid == owner;
  facts.mode = info.st_mode;
  if (statvfs(path.c_str(), &room) == 0) facts.free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
  return facts;
}

}  // namespace

void CheckKernel(Checks& checks) {
  utsname name = {};
  uname(&name);
  checks.push_back({"kernel", Health::kOk, absl::StrCat(name.sysname, " ", name.release), ""});
  checks.push_back(Landlock());
  checks.push_back(Need("memfd seals", SealsMemory(), Health::kFail,
                        "sessions share sealed memory, but a sandbox forbids memfd_create or F_ADD_SEALS"));
  checks.push_back(Need("pidfd", HasPidfds(), Health::kFail,
                        "the daemon uses it to watch its clients: use Linux 5.3 or later"));
  checks.push_back(
      Need("membarrier", HasBarrier(), Health::kWarn, "use Linux 4.16 or later; a sandbox may forbid it"));
}

void CheckLimits(const std::optional<v1::Daemon>& daemon, Checks& checks) {
  checks.push_back(OpenFiles(daemon));
  for (const auto check : {Mappings, Memory, HugePages}) checks.push_back(check());
}

void CheckProcessor(Checks& checks) {
  const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  checks.push_back({"processor", avx2 ? Health::kOk : Health::kWarn,
                    avx512 ? "AVX-512"
                    : avx2 ? "AVX2, no AVX-512"
                           : "no AVX2",
                    avx2 ? "" : "the CPU device is slow without AVX2"});
  std::string flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && flags.empty();) {
    if (line.starts_with("flags")) flags = line + " ";
  }
  const bool amx = flags.find(" amx_tile ") != std::string::npos;
  checks.push_back({"amx", Health::kOk, amx ? "available" : "missing; not needed", ""});
}

void CheckCache(const std::optional<v1::Daemon>& daemon, Checks& checks) {
  if (daemon && daemon->cache_directory().empty()) {
    checks.push_back({"cache", Health::kWarn, "the daemon keeps no compiled kernels",
                      "see the reason in its log: xpuctl logs --level warn"});
    return;
  }
  if (daemon) {
    const FolderFacts facts = LookAt(daemon->cache_directory(), daemon->uid());
    if (facts.exists) return checks.push_back(JudgeCache(facts));
    checks.push_back({"cache", Health::kWarn,
                      facts.path + " is used by the daemon, but was deleted, or this user cannot see it",
                      "restart the daemon, which creates it"});
    return;
  }
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const bool named = cache != nullptr && *cache != '\0';
  if (!named && home == nullptr) return;
  checks.push_back(JudgeCache(
      LookAt(named ? absl::StrCat(cache, "/xpud") : absl::StrCat(home, "/.cache/xpud"), geteuid())));
}

}  // namespace xpud::xpuctl
