#include "sdk/client/staging.h"

#include <algorithm>

#include "proto/base/check.h"

namespace xpud::client {

std::optional<Staging::Piece> Staging::Take(uint64_t size,
                                            absl::FunctionRef<bool(uint32_t, uint64_t)> complete) {
  while (!pieces_.empty() && !pieces_.front().held &&
         complete(pieces_.front().queue, pieces_.front().sequence)) {
    head_ = pieces_.front().end;
    pieces_.pop_front();
  }
  size = (size + 63) & ~uint64_t{63};
  uint64_t start = tail_;
  if (start % bytes_ + size > bytes_) start += bytes_ - start % bytes_;  // no piece wraps
  if (start + size - head_ > bytes_) return std::nullopt;
  tail_ = start + size;
  pieces_.push_back({tail_, 0, 0, /*held=*/true});
  return Piece{start % bytes_, tail_};
}

Staging::InUse& Staging::Find(uint64_t end) {
  const auto found =
      std::find_if(pieces_.begin(), pieces_.end(), [&](const InUse& piece) { return piece.end == end; });
  XPUD_CHECK(found != pieces_.end());
  return *found;
}

void Staging::Use(uint64_t end, uint32_t queue, uint64_t sequence, bool held) {
  Find(end) = {end, queue, sequence, held};
}

void Staging::Release(uint64_t end) { Find(end).held = false; }

}  // namespace xpud::client
