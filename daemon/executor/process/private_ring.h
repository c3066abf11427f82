// The ring between the daemon and one executor process: a memfd with the shared pages and kRingBytes of
// messages, mapped twice in a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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
  bool BacklogIsBelow(size_t bytes);  // not yet taken

  // The executor's end, one thread. All messages that are there, whole; empty when there are none.
  std::span<const std::byte> Pending() const;
  const Message* Next() const;  // the first of them, or nullptr
  void Take(size_t bytes);      // of whole messages
  // Sleeps until a message comes, at most `milliseconds` (-1: no limit).
  void Sleep(int milliseconds);

 private:
  size_t Backlog(uint64_t head) const;

  UniqueFd fd_, doorbell_;
  Mapping pages_, ring_;
  uint64_t known_head_ =
      0;                   // the daemon's: looked at anew only when it matters, for it is the executor's line
  uint64_t position_ = 0;  // tail of the daemon's end, head of the executor's
};

}  // namespace xpud::executor::process
