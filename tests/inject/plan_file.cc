#include "tests/inject/plan_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

namespace xpud::inject {
namespace {

Plan* MakePlan(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (ftruncate(fd, sizeof(Plan)) != 0) std::abort();
  void* const mapped = mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) std::abort();
  close(fd);
  return new (mapped) Plan{};
}

}  // namespace

PlanFile::PlanFile(const std::string& path, const Failure& failure) : plan_(MakePlan(path)) { Arm(failure); }

PlanFile::~PlanFile() { munmap(plan_, sizeof(Plan)); }

void PlanFile::Arm(const Failure& failure) {
  plan_->failed_in = 0;
  plan_->result = static_cast<uint32_t>(failure.result);
  plan_->sticks = failure.sticks ? 1 : 0;
  plan_->memory = failure.memory ? 1 : 0;
  plan_->fails = failure.call == 0 ? 0 : plan_->calls + failure.call;
}

}  // namespace xpud::inject
