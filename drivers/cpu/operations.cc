#include "drivers/cpu/operations.h"

#include <algorithm>
#include <cstring>

#include "drivers/frontend/clock.h"
#include "proto/base/stream_copy.h"

namespace xpud::drivers::cpu {
namespace {

// Copies and fills from 1 MiB are split over the workers, in slices that a worker claims.
constexpr size_t kSplitFrom = size_t{1} << 20;
constexpr size_t kSlice = size_t{256} << 10;

struct SliceArguments {
  std::byte* destination;
  const std::byte* source;  // a fill's pattern
  size_t pattern_size;      // 0: a copy
  size_t size;
};

void FillBytes(std::byte* destination, const std::byte* pattern, size_t pattern_size, size_t size) {
  if (pattern_size == 1) {
    std::memset(destination, static_cast<int>(*pattern), size);
    return;
  }
  // Doubles what is already filled: every prefix is a whole number of patterns.
  size_t filled = std::min(pattern_size, size);
  std::memcpy(destination, pattern, filled);
  while (filled < size) {
    const size_t step = std::min(filled, size - filled);
    std::memcpy(destination + filled, destination, step);
    filled += step;
  }
}

size_t SliceSize(size_t pattern_size) {
  return pattern_size == 0 ? kSlice : std::max(kSlice / pattern_size, size_t{1}) * pattern_size;
}

void RunSlice(const void* const* arguments, const uint32_t group[3], void*) {
  const auto& slice = *static_cast<const SliceArguments*>(arguments[0]);
  const size_t begin = group[0] * SliceSize(slice.pattern_size);
  const size_t size = std::min(SliceSize(slice.pattern_size), slice.size - begin);
  if (slice.pattern_size == 0) {
    StreamCopy(slice.destination + begin, slice.source + begin, size);
  } else {
    FillBytes(slice.destination + begin, slice.source, slice.pattern_size, size);
  }
}

void RunSlices(const SliceArguments& slices, WorkerPool& pool) {
  const void* const arguments[] = {&slices};
  const size_t slice_size = SliceSize(slices.pattern_size);
  const size_t count = (slices.size + slice_size - 1) / slice_size;
  pool.Run(RunSlice, arguments, {static_cast<uint32_t>(count), 1, 1});
}

}  // namespace

KeptLaunch& KeptLaunch::With(const ze_group_count_t& groups, const ze_group_count_t* indirect) {
  groups_ = groups;
  indirect_ = indirect;
  return *this;
}

void LaunchMultiple::Run(WorkerPool& pool) const {
  const size_t n = std::min<size_t>(*count, launches->size());
  for (size_t i = 0; i < n; ++i) (*launches)[i].Run(pool);
}

void Copy::Run(WorkerPool& pool) const {
  if (size < kStreamCopyBytes) {
    std::memcpy(destination, source, size);
  } else if (size < kSplitFrom) {
    StreamCopy(destination, source, size);
  } else {
    RunSlices({destination, source, 0, size}, pool);
  }
}

void CopyRegion::Run(WorkerPool&) const {
  for (size_t z = 0; z < region.depth; ++z) {
    for (size_t y = 0; y < region.height; ++y) {
      std::memcpy(region.destination + z * region.destination_slice_pitch + y * region.destination_pitch,
                  region.source + z * region.source_slice_pitch + y * region.source_pitch, region.width);
    }
  }
}

void KeptFill::Run(WorkerPool& pool) const {
  Fill{destination, pattern.data(), pattern.size(), size}.Run(pool);
}

void Fill::Run(WorkerPool& pool) const {
  if (size < kSplitFrom) {
    FillBytes(destination, pattern, pattern_size, size);
  } else {
    RunSlices({destination, pattern, pattern_size, size}, pool);
  }
}

void WriteTimestamp::Run(WorkerPool&) const { *destination = NowNs(); }

void QueryTimestamps::Run(WorkerPool&) const {
  for (size_t i = 0; i < events.size(); ++i) {
    ze_kernel_timestamp_result_t result{};
    if (events[i]->ReadTimestamp(result) != ZE_RESULT_SUCCESS)
      continue;  // the application must have waited for it
    const size_t offset = offsets.empty() ? i * sizeof(result) : offsets[i];
    std::memcpy(destination + offset, &result, sizeof(result));
  }
}

}  // namespace xpud::drivers::cpu
