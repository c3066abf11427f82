#include "deploy/agent/kubernetes/interrupt.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace xpud::agent::kubernetes {

absl::StatusOr<Interrupt> Interrupt::Create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid())
    return absl::ResourceExhaustedError(absl::StrCat("cannot create an eventfd: ", strerror(errno)));
  return Interrupt(std::move(fd));
}

void Interrupt::Raise() const {
  const uint64_t one = 1;
  // It fails only if the counter is at its limit, and then it is raised.
  [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));
}

void Interrupt::Clear() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd_.get(), &count, sizeof(count));  // fails if it is not raised
}

}  // namespace xpud::agent::kubernetes
