// Scatter: writes or combines elements of a source at the positions that an index gives, in place. A line is
// one along the indexed dimension. Lines are independent, and what goes to one element of a line is combined
// in the order of the source, on every device: a lane owns the elements of a line, or of a range of it, and
// goes through the whole index of the line. An index out of range is reported and skipped; one equal to
// `padding` is skipped.
//
// The lines are pieces: a line, or (host, `columns`) a slice of the lines that are neighbours in out. A host
// group takes some pieces (x) and a range of positions in out (y). A GPU lane takes a line and a range.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/formula.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/space.h"

namespace xpud::kernels {

struct ScatterKey {
  const ops::Row* row = nullptr;  // whose formula combines
  ops::DType type = ops::DType::kFloat32;
  ops::DType index = ops::DType::kInt64;
  ops::DType source = ops::DType::kFloat32;
  int rank = 1;             // of the lines
  bool immediate = false;   // the source is a number
  bool columns = false;     // the lines' innermost dimension is contiguous in out (host)
  bool contiguous = false;  // and in the source
  bool shared = false;      // and its lines have one index

  void Visit(auto& visit) {
    visit(row, kRowBits);
    visit(type, 4);
    visit(index, 4);
    visit(source, 4);
    visit(rank, 4);
    for (bool* const flag : {&immediate, &columns, &contiguous, &shared}) visit(*flag, 1);
  }
};

template <typename Side>
struct ScatterArguments {
  typename Side::Pointer out, index, source, error_word;
  typename Side::Immediate value;
  SpaceArguments<Side, 3> lines;                                        // out, index, source
  typename Side::Integer out_stride, index_stride, source_stride;       // along the dimension
  typename Side::Integer rows, length, padding;                         // of a line in out; of the index
  typename Side::Integer pieces, piece_slice, column_slice, row_slice;  // pieces: of the lines

  void Visit(const ScatterKey& key, auto& visit) {
    visit(out, index, error_word);
    if (key.immediate) {
      visit.Immediate(value, ScalarOf(key.type));
    } else {
      visit(source, source_stride);
    }
    lines.Visit(key.rank, key.immediate ? 2 : 3, visit);
    visit(out_stride, index_stride, rows, length, padding, pieces, piece_slice, column_slice, row_slice);
  }
};

class ScatterSkeleton : public SkeletonOf<ScatterKey, ops::Family::kScatter, ScatterArguments> {
 public:
  std::string Name(const ScatterKey& key) const override { return NameWith("scatter_", *key.row); }
  std::string_view Formula(const ScatterKey& key) const override { return key.row->formula; }
  absl::Status EmitBody(const ScatterKey& key, const ScatterArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans scatters along a dimension, and additions of rows (the gradient of an embedding). The library's
// thread only.
class ScatterPlanner : public Planner {
 public:
  explicit ScatterPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override {
    return family == ops::Family::kScatter || family == ops::Family::kScatterAdd;
  }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  absl::StatusOr<Readiness> PlanScatter(const ops::Row& row, const OpCall& call, int64_t padding,
                                        LaunchList& launches);

  KernelCache& cache_;
  const ScatterSkeleton skeleton_;
};

}  // namespace xpud::kernels
