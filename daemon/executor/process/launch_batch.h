// Where a run of launches in the ring is cut into batches, so that a program which does the same again gives
// the same batches again. Stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace xpud::executor::process {

inline constexpr size_t kMaxBatchLaunches = 64;

struct LaunchBatch {
  size_t launches = 0;  // 0: what was looked at is no batch, as far as it has come
  size_t bytes = 0;     // of the batch; else of the launches that were looked at
};

// `pending`: whole messages, of which the first is a launch. A batch has launches of one queue. It ends after
// a launch that only what it launches decides about (so the same run is cut at the same places, wherever it
// began), or at the most; where the run ends before that, it has a power of two of launches, at least four.
LaunchBatch CutBatch(std::span<const std::byte> pending);

}  // namespace xpud::executor::process
