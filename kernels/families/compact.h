// Elements that are not zero: how many (count), and where (compact), in row-major order.
//
// Elements are cut into blocks of ops::kCountBlock. Count writes how many each block has, and a scan turns
// these counts into running ones, in place: the ends. Compact goes through the same blocks; a block's first
// row is the end of the block before it. On the host a group takes some blocks, one after the other. On a GPU
// a group is a block, and a lane takes neighbouring elements.
//
// The ends come from the client. Each is checked where it is read: one outside 0 .. rows is reported, and the
// blocks beside it write nothing. A block writes no row at or beyond its own end.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/scan.h"
#include "kernels/families/space.h"

namespace xpud::kernels {

struct CompactKey {
  bool count = false;     // writes ends, and has no output
  int size_log2 = 0;      // of an element, in bytes
  bool floating = false;  // -0.0 is zero too
  ops::DType ends = ops::DType::kInt64;
  int rank = 1;        // collapsed
  bool dense = false;  // row-major without gaps
  int columns = 0;     // of the output: the input's rank

  void Visit(auto& visit) {
    visit(count, 1);
    visit(size_log2, 2);
    visit(floating, 1);
    visit(ends, 4);
    visit(rank, 4);
    visit(dense, 1);
    visit(columns, 4);
  }
};

template <typename Side>
struct CompactArguments {
  typename Side::Pointer self, ends, out, error_word;
  typename Side::Integer elements, ends_stride;
  typename Side::Integer blocks, block_slice;  // of a host's group
  SpaceArguments<Side, 1> space;
  typename Side::Integers sizes;  // as the client has them
  typename Side::Integer rows, row_stride, column_stride;

  void Visit(const CompactKey& key, auto& visit) {
    visit(self, ends, elements, ends_stride, blocks, block_slice);
    space.Visit(key.rank, 1, visit);
    if (key.count) return;
    visit(out, error_word, rows, row_stride, column_stride);
    visit.First(sizes, key.columns);
  }
};

class CompactSkeleton : public SkeletonOf<CompactKey, ops::Family::kCompact, CompactArguments> {
 public:
  std::string Name(const CompactKey& key) const override { return key.count ? "count" : "compact"; }
  absl::Status EmitBody(const CompactKey& key, const CompactArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Engine thread only.
class CompactPlanner : public Planner {
 public:
  explicit CompactPlanner(KernelCache& cache) : cache_(cache), scans_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // Counts become running counts, in place.
  absl::StatusOr<Readiness> AddUp(const Operand& counts, Workspace workspace, LaunchList& launches);

  KernelCache& cache_;
  const CompactSkeleton skeleton_;
  ScanPlanner scans_;
};

}  // namespace xpud::kernels
