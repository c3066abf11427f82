// Ends a wait of another thread. Thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::agent::kubernetes {

class Interrupt {
 public:
  // Returns ResourceExhausted if there is no file descriptor left.
  static absl::StatusOr<Interrupt> Create();

  // Ends the waits that are in progress, and the next one, until Clear.
  void Raise() const;
  void Clear() const;
  // Readable while raised.
  int fd() const { return fd_.get(); }

 private:
  explicit Interrupt(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace xpud::agent::kubernetes
