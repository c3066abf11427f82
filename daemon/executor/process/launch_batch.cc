#include "daemon/executor/process/launch_batch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "daemon/executor/process/messages.h"

namespace xpud::executor::process {
namespace {

constexpr size_t kMinLaunches = 4;  // fewer launches gain nothing
constexpr size_t kMinBeforeBoundary = 16;
constexpr uint64_t kBoundaryMask = 15;  // one launch in 16 is a boundary

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 29;
}

// Hashes everything of a launch except the values of its arguments.
uint64_t StructureOf(const Message& message) {
  uint64_t words[5];
  static_assert(sizeof(message.launch) == sizeof(words));
  std::memcpy(words, &message.launch, sizeof(words));
  uint64_t hash = Mix(message.queue, message.kernel);
  for (uint64_t word : words) hash = Mix(hash, word);
  return hash;
}

}  // namespace

LaunchBatch CutBatch(std::span<const std::byte> pending) {
  std::array<size_t, kMaxBatchLaunches + 1> ends;  // end offsets by number of launches
  ends[0] = 0;
  const uint32_t queue = reinterpret_cast<const Message*>(pending.data())->queue;
  uint64_t first = 0;
  bool uniform = true;  // may be cut anywhere
  bool ended = false;   // another message follows
  bool whole = false;
  size_t n = 0;
  uint64_t ideal_ns = 0;
  while (!whole && !ended && ends[n] < pending.size()) {
    const auto& message = *reinterpret_cast<const Message*>(pending.data() + ends[n]);
    ended = message.kind != MessageKind::kLaunch || message.queue != queue;
    if (ended) break;
    const uint64_t structure = StructureOf(message);
    if (n == 0) first = structure;
    uniform &= structure == first;
    ends[n + 1] = ends[n] + message.bytes;
    ++n;
    const bool boundary = !uniform && n >= kMinBeforeBoundary && (structure >> 32 & kBoundaryMask) == 0;
    ideal_ns += message.launch.ideal_ns;
    whole = boundary || n == kMaxBatchLaunches || ideal_ns >= kMaxBatchIdealNs;
  }
  const size_t cut = whole ? n : ended || uniform ? std::bit_floor(n) : 0;
  if (cut < kMinLaunches) return {0, ends[n]};
  return {cut, ends[cut]};
}

}  // namespace xpud::executor::process
