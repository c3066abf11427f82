// Reductions: a monoid over some dimensions of `a`, for each index of the others. A joint reduction has
// further inputs of a's shape; each may be broadcast.
//
// There are two loop orders. Rows: lanes run along the innermost reduced dimension and then merge. Columns,
// for tensors whose innermost dimension is kept: lanes are neighbouring outputs, each with its own state. On
// a GPU, several strands of lanes share the rows and then merge. If the outputs alone give too few groups,
// both orders cut the reduced space into parts. Each part leaves its states in the workspace, and a second
// kernel merges them in order. The cut depends only on the sizes, so a result never depends on the number of
// workers.
//
// Group x counts slices of kept items, y of the outer reduced index, z of the innermost.
#pragma once

#include <array>

#include "kernels/api/op_call.h"
#include "kernels/api/planner.h"
#include "kernels/compiler/formulas.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/space.h"

namespace xpud::kernels {

inline constexpr size_t kMaxReduced = 4;  // inputs of a joint reduction

struct ReduceKey {
  const ops::Row* row = nullptr;
  Scalar accumulate = Scalar::kF32;
  std::array<ops::DType, kMaxReduced> inputs{};
  std::array<bool, kMaxReduced> spread{};  // an element of the input serves all lanes; never of a
  std::array<ops::DType, ops::kMaxOutputs> outputs{};
  int kept = 1, reduced = 1;  // collapsed ranks
  bool columns = false;
  bool vector = false;   // the vectorised dimension of a is contiguous and long enough; the others fit
  bool partial = false;  // leaves states in the workspace
  bool attribute = false;
  bool warps = false;  // NVPTX, rows and the merge: a warp takes an item, instead of a group
  int block_log2 = 0;  // NVPTX: contiguous elements that a lane loads at once
  int column_lanes_log2 =
      0;  // GPU, columns: this many lanes take neighbouring columns; the group's others take other rows

  // Returns the number of outputs that the kernel stores.
  int stored() const { return partial ? 0 : row->outputs; }

  void Visit(auto& visit) {
    visit(row, kRowBits);
    visit(accumulate, 4);
    for (size_t i = 0; i < row->inputs; ++i) {
      visit(inputs[i], 4);
      if (i > 0) visit(spread[i], 1);
    }
    for (size_t o = 0; o < row->outputs; ++o) visit(outputs[o], 4);
    visit(kept, 4);
    visit(reduced, 4);
    for (bool* const flag : {&columns, &vector, &partial, &attribute, &warps}) visit(*flag, 1);
    visit(block_log2, 2);
    visit(column_lanes_log2, 3);
  }
};

template <typename Side>
struct ReduceArguments {
  std::array<typename Side::Pointer, ops::kMaxOutputs> outputs;
  typename Side::Pointer states;  // if partial, instead of the outputs
  std::array<typename Side::Pointer, kMaxReduced> inputs;
  typename Side::Immediate attribute;
  SpaceArguments<Side, ops::kMaxOutputs + kMaxReduced> kept;  // of the stored outputs, then of the inputs
  SpaceArguments<Side, kMaxReduced> reduced;                  // of the inputs
  typename Side::Integer count, items, item_slice, column_slice, outer_slice, inner_slice, parts;

  void Visit(const ReduceKey& key, auto& visit) {
    visit.First(outputs, key.stored());
    if (key.partial) visit(states);
    visit.First(inputs, key.row->inputs);
    if (key.attribute) visit.Immediate(attribute, key.accumulate);
    kept.Visit(key.kept, key.stored() + key.row->inputs, visit);
    reduced.Visit(key.reduced, key.row->inputs, visit);
    visit(count, items, item_slice, column_slice, outer_slice, inner_slice, parts);
  }
};

// The arguments of the merge. Its key is the reduction's, with kept = the outputs' rank.
template <typename Side>
struct ReduceMergeArguments {
  std::array<typename Side::Pointer, ops::kMaxOutputs> outputs;
  typename Side::Pointer states;
  typename Side::Immediate attribute;
  SpaceArguments<Side, ops::kMaxOutputs> kept;  // of the outputs
  typename Side::Integer count, items, item_slice, parts;

  void Visit(const ReduceKey& key, auto& visit) {
    visit.First(outputs, key.row->outputs);
    visit(states);
    if (key.attribute) visit.Immediate(attribute, key.accumulate);
    kept.Visit(key.kept, key.row->outputs, visit);
    visit(count, items, item_slice, parts);
  }
};

// Bytes of a state component in the workspace.
inline constexpr size_t kComponentBytes = 8;

class ReduceSkeleton : public SkeletonOf<ReduceKey, ops::Family::kReduce, ReduceArguments> {
 public:
  std::string Name(const ReduceKey& key) const override { return NameWith("reduce_", *key.row); }
  std::string_view Formula(const ReduceKey& key) const override { return key.row->formula; }
  absl::Status EmitBody(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Merges the parts of a partial kernel.
class ReduceMergeSkeleton : public SkeletonOf<ReduceKey, ops::Family::kReduce, ReduceMergeArguments, 1> {
 public:
  std::string Name(const ReduceKey& key) const override { return NameWith("merge_", *key.row); }
  std::string_view Formula(const ReduceKey& key) const override { return key.row->formula; }
  absl::Status EmitBody(const ReduceKey& key, const ReduceMergeArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans reductions: splits the dimensions into kept and reduced, chooses the loop order, and cuts long
// reductions into parts. The library's thread only.
class ReducePlanner : public Planner {
 public:
  explicit ReducePlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  struct Traits {
    bool known = false;
    bool uses_position = false;  // uses the position, so reduced dimensions keep their order
    bool uses_attribute = false;
    int components = 0;
  };
  // How the work is cut; see ReduceArguments.
  struct Cut {
    int64_t items = 1, item_slice = 1, column_slice = 0;
    int64_t groups = 1;  // x
    int64_t outer = 1, outer_slice = 1, inner = 1, inner_slice = 1, parts = 1;
  };

  absl::StatusOr<const Traits*> TraitsOf(const ops::Row& row);
  Cut CutOf(const ReduceKey& key, const Layout& kept, const Layout& reduced) const;
  Cut GpuCutOf(const OpCall& call, ReduceKey& key, const Layout& kept, const Layout& reduced) const;
  // Sets the key's loop order.
  static void ChooseOrder(const OpCall& call, const Layout& kept, const Layout& reduced, ReduceKey& key);
  absl::StatusOr<Readiness> PlanMerge(const OpCall& call, ReduceKey key, const Layout& kept, const Cut& cut,
                                      int64_t count, void* states, LaunchList& launches);

  KernelCache& cache_;
  const ReduceSkeleton skeleton_;
  const ReduceMergeSkeleton merge_;
  std::vector<Traits> traits_;  // by row number
};

}  // namespace xpud::kernels
