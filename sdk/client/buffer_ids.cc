#include "sdk/client/buffer_ids.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/wire/commands.h"

namespace xpud::client {

absl::StatusOr<BufferHandle> BufferIds::Take() {
  if (free_.empty()) {
    if (generations_.size() >= wire::kMaxBuffers) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a session can hold at most ", wire::kMaxBuffers - 1, " buffers"));
    }
    generations_.push_back(0);
    free_.push_back(static_cast<uint32_t>(generations_.size() - 1));
  }
  const uint32_t id = free_.back();
  free_.pop_back();
  return BufferHandle{id, ++generations_[id]};
}

void BufferIds::Return(BufferHandle handle) {
  // An id whose generations are used up is retired: a handle must never name two buffers.
  if (handle.generation != std::numeric_limits<uint32_t>::max()) free_.push_back(handle.id);
}

}  // namespace xpud::client
