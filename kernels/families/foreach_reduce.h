// Reductions of whole tensors of a list, many tensors in a launch. Each tensor is cut into parts of a fixed
// number of elements. A first launch leaves the parts' states in the workspace, a second one merges those of
// each tensor in order. The cut depends only on sizes. Tensors with gaps are planned as reductions of their
// own.
#pragma once

#include <array>

#include "kernels/families/pack.h"
#include "kernels/families/reduce.h"
#include "proto/ops/operand_lists.h"

namespace xpud::kernels {

struct ForeachReduceKey {
  const ops::Row* row = nullptr;
  Scalar accumulate = Scalar::kF32;
  ops::DType input = ops::DType::kFloat32;
  ops::DType output = ops::DType::kFloat32;
  bool finish = false;  // the second launch
  bool small = false;

  static constexpr int kSlots = 1;  // the output, or the input
  int capacity() const { return PackCapacity(kSlots, 3, small); }

  void Visit(auto& visit) {
    visit(row, kRowBits);
    visit(accumulate, 4);
    visit(input, 4);
    visit(output, 4);
    visit(finish, 1);
    visit(small, 1);
  }
  bool operator==(const ForeachReduceKey&) const = default;
};

template <typename Side>
struct ForeachReduceArguments {
  PackArguments<Side> pack;
  typename Side::Pointer states;  // by component, then by part
  typename Side::Integer parts;   // of all tensors

  void Visit(const ForeachReduceKey& key, auto& visit) {
    pack.Visit(ForeachReduceKey::kSlots, key.capacity(), visit);
    visit(states, parts);
  }
};

class ForeachReduceSkeleton
    : public SkeletonOf<ForeachReduceKey, ops::Family::kForeachReduce, ForeachReduceArguments> {
 public:
  std::string Name(const ForeachReduceKey& key) const override {
    return NameWith(key.finish ? "foreach_finish_" : "foreach_", *key.row);
  }
  std::string_view Formula(const ForeachReduceKey& key) const override { return key.row->formula; }
  absl::Status EmitBody(const ForeachReduceKey& key, const ForeachReduceArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class ForeachReducePlanner : public Planner {
 public:
  explicit ForeachReducePlanner(KernelCache& cache) : cache_(cache), reductions_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  absl::Status PlanAlone(const OpCall& call, const Operand& out, const Operand& self, Workspace workspace,
                         LaunchList& launches);
  void Join(const Operand& out, const Operand& self);
  absl::Status Flush(Workspace workspace, LaunchList& launches);

  KernelCache& cache_;
  ReducePlanner reductions_;
  const ForeachReduceSkeleton skeleton_;

  // Scratch of the call being planned.
  ForeachReduceKey key_;                                            // of the pack
  std::array<std::array<const void*, kPackTensors>, 2> addresses_;  // outputs, inputs
  ForeachReduceArguments<Planned> arguments_;
  int tensors_ = 0;
  int64_t elements_ = 0, parts_ = 0;
  Readiness readiness_ = Readiness::kReady;
};

}  // namespace xpud::kernels
