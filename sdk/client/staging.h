// Space in the staging memory: a ring whose pieces come free when the command that uses them has completed.
// Under Core's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/functional/function_ref.h"

namespace xpud::client {

class Staging {
 public:
  explicit Staging(uint64_t bytes) : bytes_(bytes) {}

  struct Piece {
    uint64_t offset;
    uint64_t end;  // position after it, for Pin and Release
  };
  // A contiguous piece of `size` <= half of the staging memory, or nothing while earlier pieces are in use.
  // `complete(queue, sequence)` says whether a command has completed. Every piece taken is then used or
  // cancelled.
  std::optional<Piece> Take(uint64_t size,
                            absl::FunctionRef<bool(uint32_t queue, uint64_t sequence)> complete);
  // The piece that ends at `end` is free once `sequence` of `queue` has completed (and Release was called, if
  // it is held).
  void Use(uint64_t end, uint32_t queue, uint64_t sequence, bool held);
  void Cancel(uint64_t end) { Use(end, 0, 0, false); }
  // A held piece (of a download) has been read.
  void Release(uint64_t end);

 private:
  struct InUse {
    uint64_t end;
    uint32_t queue;
    uint64_t sequence;
    bool held;  // not yet used, or not yet read
  };
  InUse& Find(uint64_t end);

  const uint64_t bytes_;
  uint64_t head_ = 0;  // positions count up; position % bytes_ is the place
  uint64_t tail_ = 0;
  std::deque<InUse> pieces_;
};

}  // namespace xpud::client
