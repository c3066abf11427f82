// Softmax and log-softmax along one dimension, forward and backward.
//
// Rows: the dimension is innermost, or no order is better; each row is reduced along it. Columns: the
// innermost dimension is another one, contiguous in all operands. Blocks of kColumnBlock neighbouring rows
// are reduced together, with their maxima and sums in scratch.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/row_plan.h"
#include "kernels/families/space.h"

namespace xpud::kernels {

struct SoftmaxKey {
  bool columns = false;
  bool logarithm = false;
  bool backward = false;
  bool contiguous = false;  // rows: the dimension's stride is 1 everywhere
  bool staged = false;      // rows, forward, not logarithm: exponentials are kept in scratch, as f32
  RowPlan rows = {};        // GPU
  int column_lanes_log2 =
      0;  // GPU, columns: this many lanes take neighbouring columns; the others take other rows
  int kept = 1;
  ops::DType out = ops::DType::kFloat32;
  ops::DType input = ops::DType::kFloat32;

  int operands() const { return backward ? 3 : 2; }  // out, then inputs

  void Visit(auto& visit) {
    for (bool* const bit : {&columns, &logarithm, &backward, &contiguous, &staged}) visit(*bit, 1);
    visit(kept, 4);
    visit(out, 4);
    visit(input, 4);
    rows.Visit(visit);
    visit(column_lanes_log2, 3);
  }
};

template <typename Side>
struct SoftmaxArguments {
  std::array<typename Side::Pointer, 3> operands;
  SpaceArguments<Side, 3> kept;
  typename Side::Integer n;                       // size of the dimension
  std::array<typename Side::Integer, 3> strides;  // along it
  typename Side::Integer items, slice;            // slice: of items (rows) or of columns

  void Visit(const SoftmaxKey& key, auto& visit) {
    visit.First(operands, key.operands());
    kept.Visit(key.kept, key.operands(), visit);
    visit(n);
    visit.First(strides, key.operands());
    visit(items, slice);
  }
};

inline constexpr int64_t kColumnBlock = 512;

class SoftmaxSkeleton : public SkeletonOf<SoftmaxKey, ops::Family::kSoftmax, SoftmaxArguments> {
 public:
  std::string Name(const SoftmaxKey& key) const override;
  absl::Status EmitBody(const SoftmaxKey& key, const SoftmaxArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans softmax, log-softmax and their gradients. The library's thread only.
class SoftmaxPlanner : public Planner {
 public:
  explicit SoftmaxPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // GPU: how lanes share the work.
  // Either direction: the output, and then the inputs.
  struct Operands {
    std::array<const Operand*, 3> list{};
    size_t count = 0;
    int64_t dim = 0;
  };
  static Operands OperandsOf(const OpCall& call);
  void ChooseLanes(const Operands& softmax, const Layout& kept, int64_t n, SoftmaxKey& key) const;

  KernelCache& cache_;
  const SoftmaxSkeleton skeleton_;
};

}  // namespace xpud::kernels
