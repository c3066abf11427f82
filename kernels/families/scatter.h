// Rows added to the rows that an index names: out[index[n], :] += source[n, :], in place, in the order of n
// for each element of out, whatever the device. No two lanes share an element: each owns some columns of a
// range of out's rows, and goes through the whole index. An index out of range is reported and skipped; one
// equal to `padding` is skipped.
//
// Arguments: out, index, source, error word | rows and columns of out, count of the index, padding, column
// slice, row slice | strides: out's two, index's, source's two. A host group is a slice of columns (x) and of
// rows (y). A GPU lane is one column of a slice of rows: lane number = row slice * columns + column.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

struct ScatterKey {
  ops::DType type = ops::DType::kFloat32;
  ops::DType index = ops::DType::kInt64;
  bool contiguous = false;  // rows of out and of source are

  KernelKey Pack() const;
  static ScatterKey Unpack(const KernelKey& key);
};

class ScatterSkeleton : public Skeleton {
 public:
  std::string NameOf(const KernelKey& key) const override;
  std::string Describe(const KernelKey& key) const override;
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

// Plans additions of rows at indices (the gradient of an embedding). Engine thread only.
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
