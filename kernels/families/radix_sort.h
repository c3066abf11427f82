// Sorting of lines by their digits, on NVIDIA GPUs: least significant digit first, 8 bits at a time. Each
// pass is stable, so the result is.
//
// An element becomes a key, a number in the order of the result, and a position in its line. Lines are cut
// into tiles, and a group takes one. A pass has up to three kernels:
// - Count: how many keys of a tile have each digit.
// - Scan: the counts of a digit become running counts over the tiles of a line. A warp takes a digit. If the
//   tiles are few, the next kernel adds the counts up itself instead.
// - Place: a group ranks a tile's keys by digit. A warp's lanes with equal digits find each other by votes;
//   the order of the result is that of the keys. Keys and positions are put in order in shared memory, then
//   written to their places, so that neighbouring lanes write neighbours.
// The first pass reads the elements, and the last one writes the result; between them, keys and positions
// are in one of two halves of the workspace. A line of one tile takes a single kernel that ranks as above,
// and keeps keys and positions in registers.
//
// Integers seldom use all of their digits. The first pass finds the bits in which a line's keys differ. A
// pass over a digit without such a bit does nothing, except for the last one, which copies.
//
// Everything depends on sizes and values alone, never on which group runs first.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/sort_order.h"
#include "kernels/families/space.h"

namespace xpud::kernels {

// kLine: all passes of a line of one tile.
enum class RadixStage : uint8_t { kCount, kScan, kPlace, kLine };

struct RadixKey {
  static constexpr int64_t kDigitBits = 8, kDigits = 1 << kDigitBits;
  static int64_t PassesOf(ops::DType type) {
    return static_cast<int64_t>(ops::SizeOf(type)) * 8 / kDigitBits;
  }

  RadixStage stage = RadixStage::kCount;
  ops::DType type =
      ops::DType::kInt64;  // of the elements; the integer of their size if they are not accessed
  bool descending = false;
  bool first = false, last = false;  // of the passes
  bool skips = false;                // passes may have nothing to do
  bool few = false;                  // tiles of a line: at most kFewTiles, and they are not scanned
  int rank = 0;                      // of the lines, 0 if their elements are not accessed
  int items = 16;                    // of a lane

  bool has_elements() const { return rank > 0; }
  int64_t tile() const { return int64_t{kGpuLanes} * items; }

  void Visit(auto& visit) {
    visit(stage, 2);
    visit(type, 4);
    for (bool* const flag : {&descending, &first, &last, &skips, &few}) visit(*flag, 1);
    visit(rank, 4);
    visit(items, 5);
  }
};

template <typename Side>
struct RadixArguments {
  typename Side::Integer n, k, lines, tiles, pass, passes;
  std::array<typename Side::Pointer, 2> keys, positions;  // [line, n]
  typename Side::Pointer counts;                          // [line, digit, tile]; few: [line, tile, digit]
  typename Side::Pointer totals;                          // [line, digit]
  typename Side::Pointer changes;  // [line, tile]: bits in which keys differ from the line's first one
  typename Side::Pointer varying;  // [line]: the same of the whole line
  typename Side::Pointer values, indices, self;
  typename Side::Integer values_stride, indices_stride, self_stride;  // along the line
  SpaceArguments<Side, 3> space;                                      // of the lines

  void Visit(const RadixKey& key, auto& visit) {
    visit(n, k, lines, tiles, pass, passes, counts, totals, changes, varying);
    if (key.stage == RadixStage::kCount || key.stage == RadixStage::kPlace)
      visit(keys[0], keys[1], positions[0], positions[1]);
    if (!key.has_elements()) return;
    visit(values, indices, self, values_stride, indices_stride, self_stride);
    space.Visit(key.rank, 3, visit);
  }
};

class RadixSkeleton : public SkeletonOf<RadixKey, ops::Family::kSort, RadixArguments, 1> {
 public:
  std::string Name(const RadixKey& key) const override;
  absl::Status EmitBody(const RadixKey& key, const RadixArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class RadixSort {
 public:
  explicit RadixSort(KernelCache& cache) : cache_(cache) {}

  // Plans a call of family kSort. REQUIRES: NVPTX, an output with elements, lines of less than 2^31 elements.
  absl::StatusOr<Readiness> Plan(const OpCall& call, const SortedLines& lines, Workspace workspace,
                                 LaunchList& launches);

  struct Kernels;

 private:
  absl::StatusOr<Readiness> PlanLines(const OpCall& call, const SortedLines& lines, LaunchList& launches);
  // Returns false if one of the kernels is being compiled.
  absl::StatusOr<bool> Find(const SortedLines& lines, Kernels& kernels);

  KernelCache& cache_;
  const RadixSkeleton skeleton_;
};

}  // namespace xpud::kernels
