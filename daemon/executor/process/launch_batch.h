// Cuts runs of launches in the ring into batches, so that a program that repeats itself produces the same
// batches again. Stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace xpud::executor::process {

inline constexpr size_t kMaxBatchLaunches = 64;
inline constexpr uint64_t kMaxBatchIdealNs = 75'000;  // as predicted; in fact often twice as long

struct LaunchBatch {
  size_t launches = 0;  // 0: no batch yet
  size_t bytes = 0;     // size of the batch, or of the inspected launches if there is no batch
};

// `pending` are complete messages; the first is a launch. A batch has launches of one queue. It ends after a
// boundary, which depends only on that launch (so the same run is cut at the same places wherever reading
// began), at kMaxBatchLaunches, or after the launch with which they take kMaxBatchIdealNs: work of others
// that goes first waits for all of them. If the run ends earlier, the batch has a power of two of launches,
// at least four.
LaunchBatch CutBatch(std::span<const std::byte> pending);

}  // namespace xpud::executor::process
