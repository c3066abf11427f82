#include "proto/transport/patience.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace xpud::transport {

// "0.20 0.18 0.12 3/80 11206": of 80 threads 3 run, or wait for a core.
bool IsCrowded() {
  static const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  // Not opened each time: that takes 45 us where the threads of several programs do it at once.
  static const int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  char text[64];
  const ssize_t bytes = pread(fd, text, sizeof(text), 0);
  const std::string_view line(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  const size_t slash = line.find('/');
  const size_t space = line.substr(0, slash).rfind(' ');
  if (slash == line.npos || space == line.npos) return false;
  long running = 0;
  std::from_chars(text + space + 1, text + slash, running);
  return running > cores;
}

}  // namespace xpud::transport
