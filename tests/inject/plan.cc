#include "tests/inject/plan.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

namespace xpud::inject {

Plan& CreatePlan(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (ftruncate(fd, sizeof(Plan)) != 0) std::abort();
  void* const mapped = mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) std::abort();
  close(fd);
  return *new (mapped) Plan{};
}

}  // namespace xpud::inject
