// What programs print on standard output. Header only.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace xpud {

// Writes out what was printed. Returns false, after a line on standard error, if not all of it could be
// written, for example to a full disk: then the program must not end with 0.
inline bool FinishOutput(const char* program) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return true;
  std::fprintf(stderr, "%s: cannot write the output%s%s\n", program, errno == 0 ? "" : ": ",
               errno == 0 ? "" : std::strerror(errno));
  return false;
}

}  // namespace xpud
