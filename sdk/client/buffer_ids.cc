#include "sdk/client/buffer_ids.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/wire/commands.h"

namespace xpud::client {

absl::StatusOr<BufferHandle> BufferIds::Take() {
  if (closed_) return absl::UnavailableError("this xpud session has ended");
  if (free_.empty()) {
    if (generations_.size() >= wire::kMaxBuffers) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a session can hold at most ", wire::kMaxBuffers - 1, " buffers"));
    }
    generations_.push_back(used_);
    free_.push_back(static_cast<uint32_t>(generations_.size() - 1));
  }
  const uint32_t id = free_.back();
  free_.pop_back();
  const uint32_t generation = ++generations_[id];
  if (generation > highest_) highest_ = generation;
  return BufferHandle{id, generation};
}

void BufferIds::Return(BufferHandle handle) {
  // An id whose generations are used up is retired: a handle must never name two buffers.
  if (handle.generation != std::numeric_limits<uint32_t>::max()) free_.push_back(handle.id);
}

}  // namespace xpud::client
