// Softmax and log-softmax along one dimension, forward and backward.
//
// Rows: the dimension is innermost, or no better order exists; each row is reduced along it. Columns: the
// innermost dimension is another one, contiguous in all operands; blocks of kColumnBlock neighbouring rows
// are reduced together, their maxima and sums in scratch.
//
// Arguments: operand pointers (out, then inputs) | kept sizes[kept] | kept strides of each operand | n | n's
// stride in each operand | items | item slice (rows) or column slice (columns).
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/layout.h"
#include "kernels/families/row_plan.h"

namespace xpud::kernels {

struct SoftmaxKey {
  bool columns = false;
  bool logarithm = false;
  bool backward = false;
  bool contiguous = false;    // rows: the dimension's stride is 1 everywhere
  bool staged = false;        // rows, forward, not logarithm: exponentials are kept in scratch, as f32
  RowPlan rows = {};          // GPU
  int column_lanes_log2 = 0;  // GPU, columns: neighbouring lanes take neighbouring columns, others rows
  int kept = 1;
  ops::DType out = ops::DType::kFloat32;
  ops::DType input = ops::DType::kFloat32;

  KernelKey Pack() const;
  static SoftmaxKey Unpack(const KernelKey& key);
};

inline constexpr int64_t kColumnBlock = 512;

class SoftmaxSkeleton : public Skeleton {
 public:
  std::string NameOf(const KernelKey& key) const override;
  std::string Describe(const KernelKey&) const override { return {}; }
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

// Plans softmax and its relatives. Engine thread only.
class SoftmaxPlanner : public Planner {
 public:
  explicit SoftmaxPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override {
    return family == ops::Family::kSoftmax || family == ops::Family::kSoftmaxBackward;
  }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // GPU: how lanes share the work.
  void ChooseLanes(const OpCall& call, const Layout& kept, int64_t n, SoftmaxKey& key) const;

  KernelCache& cache_;
  const SoftmaxSkeleton skeleton_;
};

}  // namespace xpud::kernels
