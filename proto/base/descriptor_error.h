// Errors of calls that make a file descriptor. Header only; thread-safe.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xpud {

// Returns the error for `errno`, which the failed call `what` has left. At a limit of descriptors it is
// ResourceExhausted and names the process that has reached it, since the error may be read in another
// process.
inline absl::Status DescriptorError(const std::string& what) {
  if (errno == ENFILE)
    return absl::ResourceExhaustedError("this machine has reached its limit of open files (fs.file-max)");
  if (errno != EMFILE) return absl::ErrnoToStatus(errno, absl::StrCat(what, " failed"));
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return absl::ResourceExhaustedError(
      absl::StrCat(program_invocation_short_name, " (pid ", getpid(), ") has reached its limit of ",
                   limit.rlim_cur, " file descriptors; raise it: ulimit -n, or LimitNOFILE= of its unit"));
}

}  // namespace xpud
