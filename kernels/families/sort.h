// Sorting along one dimension: the first k elements of each line, and their positions.
//
// An element becomes an item: its bits as an unsigned number in the order of the result, and its position. No
// two items of a line are equal, so the order is total and the result stable, whatever sorts them. Keys of up
// to 32 bits and positions share a word; wider keys and long lines have two words.
//
// A first kernel sorts tiles of each line, which gives runs; each further kernel merges pairs of runs until
// one is left. Of a run, only the first k items are kept. The last kernel writes values, by position, and
// positions. A line of one tile takes one kernel. Runs lie in the workspace, in two halves that take turns.
// - Tiles. On a GPU, a group sorts a tile, or several short lines, in shared memory (bitonic). On the host a
//   network sorts 8 items, and merges in scratch do the rest. For small k, the host's tile keeps items that
//   precede the k-th one so far, and sorts when they are many. It compares neighbouring elements as vectors.
// - Merges. A work item writes `chunk` items of a run. It finds where they begin in the two runs by binary
//   search (merge path: Odeh, Green et al. 2012), and merges them one by one. A GPU's lane is a work item.
//
// Everything depends on sizes alone. On NVIDIA GPUs, lines of more than 512 elements are sorted by digits
// instead, also if only a few are wanted: see radix_sort.h.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/radix_sort.h"
#include "kernels/families/space.h"

namespace xpud::kernels {

// Elements of a tile, and of a selection: the largest k, and how many items are kept beyond k before they are
// sorted.
struct SortTile {
  static constexpr int kGpuLog2 = 11;
  static constexpr int64_t kGpu = int64_t{1} << kGpuLog2, kHost = 4096;
  static constexpr int64_t kMaxSelected = 1024, kSpare = 32;
};

struct SortKey {
  ops::DType type = ops::DType::kInt64;
  bool wide = false;  // an item has two words
  bool descending = false;
  bool merges = false;  // runs; else sorts tiles
  bool last = false;    // writes the results
  bool select = false;  // the host's tiles, for small k
  bool dense = false;   // a selected line's elements are neighbours
  int rank = 0;         // of the lines, 0 if their elements are not accessed
  int run_log2 = 0;     // slots of a GPU's tile that one line has

  bool has_elements() const { return rank > 0; }

  void Visit(auto& visit) {
    visit(type, 4);
    for (bool* const flag : {&wide, &descending, &merges, &last, &select, &dense}) visit(*flag, 1);
    visit(rank, 4);
    visit(run_log2, 4);
  }
};

// The runs of each line after one kernel.
template <typename Side>
struct RunArguments {
  // Elements that a run covers, items that it keeps, runs of a line, items of a line.
  typename Side::Integer covers, length, count, pitch;

  void Visit(auto& visit) { visit(covers, length, count, pitch); }
};

template <typename Side>
struct SortArguments {
  typename Side::Pointer from, to;  // runs
  RunArguments<Side> before, after;
  typename Side::Integer n, k, lines;
  typename Side::Integer chunk;  // of a merge
  typename Side::Integer slice;  // tiles or chunks of a host's group
  typename Side::Pointer values, indices, self;
  typename Side::Integer values_stride, indices_stride, self_stride;  // along the line
  SpaceArguments<Side, 3> space;                                      // of the lines

  void Visit(const SortKey& key, auto& visit) {
    visit(n, k, lines, slice);
    after.Visit(visit);
    if (!key.last) visit(to);
    if (key.merges) {
      visit(from, chunk);
      before.Visit(visit);
    }
    if (!key.has_elements()) return;
    visit(values, indices, self, values_stride, indices_stride, self_stride);
    space.Visit(key.rank, 3, visit);
  }
};

class SortSkeleton : public SkeletonOf<SortKey, ops::Family::kSort, SortArguments> {
 public:
  std::string Name(const SortKey& key) const override {
    return key.merges ? "sort_merge" : key.select ? "sort_select" : "sort_tiles";
  }
  absl::Status EmitBody(const SortKey& key, const SortArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class SortPlanner : public Planner {
 public:
  explicit SortPlanner(KernelCache& cache) : cache_(cache), radix_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

  struct SortPlan;
  struct Kernels;
  struct Cut;

 private:
  // Returns false if one of the call's kernels is being compiled.
  absl::StatusOr<bool> Find(const SortPlan& plan, Kernels& kernels);
  // Adds a launch that merges pairs of the runs in `arguments.after`.
  void AddMerge(const SortPlan& plan, const Kernels& kernels, SortArguments<Planned>& arguments,
                LaunchList& launches);
  void Add(const Kernel* kernel, const SortKey& key, SortArguments<Planned>& arguments, const Cut& cut,
           LaunchList& launches);

  KernelCache& cache_;
  const SortSkeleton skeleton_;
  RadixSort radix_;
};

}  // namespace xpud::kernels
