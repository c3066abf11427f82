// Scans: the running state of a monoid along one dimension of `a`, finished at each element.
//
// An item is one line along that dimension. On the host, a group takes a slice of items one after the other.
// If neighbouring items are contiguous (columns), it takes vectors of them. On a GPU, a lane takes an item if
// items are contiguous or short. Otherwise a group takes an item tile by tile: each lane steps through its
// own elements, the lanes' states are merged in shared memory, and each lane steps again from the state
// before it. If there are few, long items, they are cut into parts: a first kernel leaves each part's state
// in the workspace, and a second one starts each part from the states before it. The cut depends only on the
// sizes, so a result never depends on the number of workers.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/formulas.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/space.h"

namespace xpud::kernels {

struct ScanKey {
  const ops::Row* row = nullptr;
  Scalar accumulate = Scalar::kF32;
  ops::DType input = ops::DType::kFloat32;
  ops::DType output = ops::DType::kFloat32;  // the second output is int64
  int rank = 1;                              // of the items
  bool columns = false;                      // the items' innermost dimension is contiguous everywhere
  bool lanes = false;                        // GPU: a lane takes an item
  bool totals = false;                       // stores only the parts' states, in the workspace
  bool parts = false;                        // starts from the parts' states

  int operands() const { return row->outputs + 1; }  // the outputs, then a

  void Visit(auto& visit) {
    visit(row, kRowBits);
    visit(accumulate, 4);
    visit(input, 4);
    visit(output, 4);
    visit(rank, 4);
    for (bool* const flag : {&columns, &lanes, &totals, &parts}) visit(*flag, 1);
  }
};

template <typename Side>
struct ScanArguments {
  static constexpr size_t kOperands = ops::kMaxOutputs + 1;
  std::array<typename Side::Pointer, kOperands> operands;
  typename Side::Pointer states;
  SpaceArguments<Side, kOperands> items;
  std::array<typename Side::Integer, kOperands> strides;          // along the dimension
  typename Side::Integer length, count, item_slice, part, parts;  // count: of the items

  void Visit(const ScanKey& key, auto& visit) {
    visit.First(operands, key.operands());
    visit(states);
    items.Visit(key.rank, key.operands(), visit);
    visit.First(strides, key.operands());
    visit(length, count, item_slice, part, parts);
  }
};

class ScanSkeleton : public SkeletonOf<ScanKey, ops::Family::kScan, ScanArguments> {
 public:
  std::string Name(const ScanKey& key) const override {
    return NameWith(key.totals ? "scan_totals_" : "scan_", *key.row);
  }
  std::string_view Formula(const ScanKey& key) const override { return key.row->formula; }
  absl::Status EmitBody(const ScanKey& key, const ScanArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class ScanPlanner : public Planner {
 public:
  explicit ScanPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const ScanSkeleton skeleton_;
};

}  // namespace xpud::kernels
