// The ring between the daemon and one executor process: a memfd with the shared pages and kRingBytes of
// messages, mapped twice in a row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "daemon/executor/process/messages.h"
#include "proto/base/mapping.h"
#include "proto/base/unique_fd.h"

namespace xpud::executor::process {

class PrivateRing {
 public:
  static absl::StatusOr<PrivateRing> Create();
  static absl::StatusOr<PrivateRing> Open(UniqueFd fd, UniqueFd doorbell);

  SharedPages& pages() const { return *reinterpret_cast<SharedPages*>(pages_.data()); }
  RingControl& control() const { return pages().control; }
  const UniqueFd& fd() const { return fd_; }
  const UniqueFd& doorbell() const { return doorbell_; }  // eventfd

  // The daemon's end, one thread. Space for `bytes` at position(), or nullptr while there is none.
  std::byte* Reserve(size_t bytes);
  void Commit(size_t bytes);  // what was reserved is whole, and may be taken
  // Wakes a sleeping executor. Wanted after the last Commit of a series.
  void Wake();
  uint64_t position() const { return position_; }
  size_t backlog() const;  // bytes not yet taken

  // The executor's end, one thread. The next message, or nullptr.
  const Message* Next() const;
  void Take(const Message& message);
  // Sleeps until a message comes, at most `milliseconds` (-1: no limit).
  void Sleep(int milliseconds);

 private:
  UniqueFd fd_, doorbell_;
  Mapping pages_, ring_;
  uint64_t position_ = 0;  // tail of the daemon's end, head of the executor's
};

}  // namespace xpud::executor::process
