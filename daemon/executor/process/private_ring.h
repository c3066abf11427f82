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

  // For the daemon, one thread. Returns space for `bytes` at position(), or nullptr if the ring is full.
  std::byte* Reserve(size_t bytes);
  void Commit(size_t bytes);  // completes the reserved message
  // Copies complete messages to the ring. Returns false if they do not fit.
  bool Send(std::span<const std::byte> messages);
  // Wakes a sleeping executor. Call after the last message of a series.
  void Wake();
  uint64_t position() const { return position_; }
  bool BacklogIsBelow(size_t bytes);  // bytes that the executor has not taken

  // For the executor, one thread. Returns all complete messages; empty if there are none.
  std::span<const std::byte> Pending() const;
  const Message* Next() const;  // the first message, or nullptr
  void Take(size_t bytes);      // removes complete messages
                                // Sleeps until a message comes or `milliseconds` have passed (-1: no limit).
  void Sleep(int milliseconds);

 private:
  size_t Backlog(uint64_t head) const;

  UniqueFd fd_, doorbell_;
  Mapping pages_, ring_;
  uint64_t known_head_ =
      0;                   // the daemon's copy, read again only when needed: the executor owns the cache line
  uint64_t position_ = 0;  // the tail for the daemon, the head for the executor
};

}  // namespace xpud::executor::process
