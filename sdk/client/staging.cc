#include "sdk/client/staging.h"

namespace xpud::client {

std::optional<Staging::Piece> Staging::Take(uint64_t size, absl::FunctionRef<bool(uint32_t, uint64_t)> complete) {
  while (!pieces_.empty() && !pieces_.front().held && complete(pieces_.front().queue, pieces_.front().sequence)) {
    head_ = pieces_.front().end;
    pieces_.pop_front();
  }
  size = (size + 63) & ~uint64_t{63};
  uint64_t start = tail_;
  if (start % bytes_ + size > bytes_) start += bytes_ - start % bytes_;  // no piece wraps
  if (start + size - head_ > bytes_) return std::nullopt;
  tail_ = start + size;
  return Piece{start % bytes_, tail_};
}

void Staging::Use(uint32_t queue, uint64_t sequence, uint64_t end, bool held) { pieces_.push_back({end, queue, sequence, held}); }

void Staging::Release(uint64_t end) {
  for (InUse& piece : pieces_) {
    if (piece.end == end) piece.held = false;
  }
}

}  // namespace xpud::client
