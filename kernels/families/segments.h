// Reductions of segments of rows: row b of out is the reduction of the rows of data that segment b names, in
// order, so that nothing is shared between segments. With an index this is a gather without a copy of the
// gathered rows (bags of embeddings).
//
// On the host, a group takes some segments and goes through vectors of columns. A GPU lane takes a column of
// a segment. Begins and ends out of range are reported, and their segment writes nothing. A row out of range
// is reported and skipped; one equal to `padding` is skipped. A segment without rows writes nothing.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/formulas.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

struct SegmentsKey {
  const ops::Row* row = nullptr;
  ops::DType data = ops::DType::kFloat32;
  ops::DType begins = ops::DType::kInt64;
  ops::DType ends = ops::DType::kInt64;
  ops::DType index = ops::DType::kInt64;
  bool indexed = false;
  bool weighted = false;
  bool contiguous = false;  // rows of out and of data are contiguous

  bool positions() const { return row->types == ops::TypeRule::kIndex; }
  ops::DType output() const { return positions() ? ops::DType::kInt64 : data; }

  void Visit(auto& visit) {
    visit(row, kRowBits);
    visit(data, 4);
    visit(begins, 4);
    visit(ends, 4);
    visit(index, 4);
    for (bool* const flag : {&indexed, &weighted, &contiguous}) visit(*flag, 1);
  }
};

template <typename Side>
struct SegmentsArguments {
  typename Side::Pointer out, data, begins, ends, index, weights, error_word;
  typename Side::Integer rows, columns, segments, positions, padding;  // rows: of data
  typename Side::Integer segment_slice;                                // of a host's group
  typename Side::Integer out_row, out_column, data_row, data_column;   // strides
  typename Side::Integer begins_stride, ends_stride, index_stride, weights_stride;

  void Visit(const SegmentsKey& key, auto& visit) {
    visit(out, data, begins, ends, error_word);
    if (key.indexed) visit(index, index_stride);
    if (key.weighted) visit(weights, weights_stride);
    visit(rows, columns, segments, positions, padding, segment_slice);
    visit(out_row, out_column, data_row, data_column, begins_stride, ends_stride);
  }
};

class SegmentsSkeleton : public SkeletonOf<SegmentsKey, ops::Family::kSegments, SegmentsArguments> {
 public:
  std::string Name(const SegmentsKey& key) const override { return NameWith("segments_", *key.row); }
  std::string_view Formula(const SegmentsKey& key) const override { return key.row->formula; }
  absl::Status EmitBody(const SegmentsKey& key, const SegmentsArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class SegmentsPlanner : public Planner {
 public:
  explicit SegmentsPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const SegmentsSkeleton skeleton_;
};

}  // namespace xpud::kernels
