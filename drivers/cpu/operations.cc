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
  // Doubles the filled part, which is always a whole number of patterns.
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

void Run(const LaunchMultiple& launches, WorkerPool& pool) {
  const size_t n = std::min<size_t>(*launches.count, launches.launches->size());
  for (size_t i = 0; i < n; ++i) (*launches.launches)[i].Run(pool);
}

void Run(const Copy& copy, WorkerPool& pool) {
  auto* const destination = static_cast<std::byte*>(copy.destination);
  const auto* const source = static_cast<const std::byte*>(copy.source);
  if (copy.size < kStreamCopyBytes) {
    std::memcpy(destination, source, copy.size);
  } else if (copy.size < kSplitFrom) {
    StreamCopy(destination, source, copy.size);
  } else {
    RunSlices({destination, source, 0, copy.size}, pool);
  }
}

void Run(const CopyRegion& copy, WorkerPool&) {
  const RegionCopy& region = copy.region;
  for (size_t z = 0; z < region.depth; ++z) {
    for (size_t y = 0; y < region.height; ++y) {
      std::memcpy(region.destination + z * region.destination_slice_pitch + y * region.destination_pitch,
                  region.source + z * region.source_slice_pitch + y * region.source_pitch, region.width);
    }
  }
}

void Run(const Fill& fill, WorkerPool& pool) {
  auto* const destination = static_cast<std::byte*>(fill.destination);
  if (fill.size < kSplitFrom) {
    FillBytes(destination, fill.pattern, fill.pattern_size, fill.size);
  } else {
    RunSlices({destination, fill.pattern, fill.pattern_size, fill.size}, pool);
  }
}

void Run(const WriteTimestamp& write, WorkerPool&) { *write.destination = NowNs(); }

void Run(const QueryTimestamps<EventState>& query, WorkerPool&) {
  for (size_t i = 0; i < query.events.size(); ++i) {
    ze_kernel_timestamp_result_t result{};
    if (query.events[i]->ReadTimestamp(result) != ZE_RESULT_SUCCESS)
      continue;  // the application must have waited for the event
    std::memcpy(query.target(i), &result, sizeof(result));
  }
}

}  // namespace xpud::drivers::cpu
