// Adds rows to the rows that an index names: out[index[n], :] += source[n, :], in place. The additions to
// each element of out are in the order of n on every device. No two lanes share an element: each lane owns
// some columns of a range of out's rows and goes through the whole index. An index out of range is reported
// and skipped; one equal to `padding` is skipped.
//
// A host group is a slice of columns (x) and of rows (y). A GPU lane is one column of a slice of rows: lane
// number = row slice * columns + column.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

struct ScatterKey {
  ops::DType type = ops::DType::kFloat32;
  ops::DType index = ops::DType::kInt64;
  bool contiguous = false;  // rows of out and of source are contiguous

  void Visit(auto& visit) {
    visit(type, 4);
    visit(index, 4);
    visit(contiguous, 1);
  }
};

template <typename Side>
struct ScatterArguments {
  typename Side::Pointer out, index, source, error_word;
  typename Side::Integer rows, columns, count, padding;  // count: of the index
  typename Side::Integer column_slice, row_slice;
  typename Side::Integer out_row_stride, out_column_stride, index_stride, source_row_stride,
      source_column_stride;

  void Visit(const ScatterKey&, auto& visit) {
    visit(out, index, source, error_word, rows, columns, count, padding, column_slice, row_slice);
    visit(out_row_stride, out_column_stride, index_stride, source_row_stride, source_column_stride);
  }
};

class ScatterSkeleton : public SkeletonOf<ScatterKey, ops::Family::kScatterAdd, ScatterArguments> {
 public:
  std::string Name(const ScatterKey&) const override { return "scatter_add"; }
  absl::Status EmitBody(const ScatterKey& key, const ScatterArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans additions of rows at indices (the gradient of an embedding). The library's thread only.
class ScatterPlanner : public Planner {
 public:
  explicit ScatterPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kScatterAdd; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const ScatterSkeleton skeleton_;
};

}  // namespace xpud::kernels
