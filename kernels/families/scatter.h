// Scatter: writes or combines elements of a source at the positions that an index gives, in place. A line is
// one along the indexed dimension. An index out of range is reported and skipped; one equal to `padding` is
// skipped. There are three ways:
// - By line. What goes to one element of a line is combined in the order of the source: a lane owns the
//   elements of a line, or of a range of it, and goes through the whole index of the line. The lines are
//   pieces: a line, or (host, `columns`) a slice of the lines that are neighbours in out. A host group takes
//   some pieces (x) and a range of positions in out (y). A GPU lane takes a line and a range.
// - By element, on GPUs, if the order does not matter: to the caller, or because integers are added, or the
//   largest is wanted. A lane takes an element of the source, and combines atomically. Neighbouring lanes
//   have neighbours in out. Where the processor adds blocks of floats at once, a lane takes a block.
// - By run, on GPUs, if the order matters, and the lines share a long index. The index is sorted, so that
//   equal positions are a run, in the order of the source. The lane at the beginning of a run goes through
//   it.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/formulas.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/sort.h"
#include "kernels/families/space.h"

namespace xpud::kernels {

// kPrepare makes the numbers that are sorted before kRun: the positions in 32 bits, or kNoRow.
enum class ScatterBy : uint8_t { kLine, kElement, kPrepare, kRun };

struct ScatterKey {
  static constexpr int64_t kNoRow = INT32_MAX;

  ScatterBy by = ScatterBy::kLine;
  const ops::Row* row = nullptr;  // whose formula combines
  ops::DType type = ops::DType::kFloat32;
  ops::DType index = ops::DType::kInt64;
  ops::DType source = ops::DType::kFloat32;
  int rank = 1;             // of the lines
  bool immediate = false;   // the source is a number
  bool columns = false;     // the lines' innermost dimension is contiguous in out (host)
  bool contiguous = false;  // and in the source
  bool shared = false;      // and its lines have one index
  bool blocks = false;      // by element: a lane takes kBlock elements, which have one index

  // Elements of a block.
  static constexpr int64_t kBlock = 4;

  void Visit(auto& visit) {
    visit(by, 2);
    visit(row, kRowBits);
    visit(type, 4);
    visit(index, 4);
    visit(source, 4);
    visit(rank, 4);
    for (bool* const flag : {&immediate, &columns, &contiguous, &shared, &blocks}) visit(*flag, 1);
  }
};

template <typename Side>
struct ScatterArguments {
  typename Side::Pointer out, index, source, error_word;
  typename Side::Pointer sorted, order;  // positions in out, sorted; where they were in the index
  typename Side::Immediate value;
  SpaceArguments<Side, 3> lines;                                        // out, index, source
  typename Side::Integer out_stride, index_stride, source_stride;       // along the dimension
  typename Side::Integer rows, length, padding;                         // of a line in out; of the index
  typename Side::Integer pieces, piece_slice, column_slice, row_slice;  // pieces: of the lines

  void Visit(const ScatterKey& key, auto& visit) {
    if (key.by == ScatterBy::kPrepare) {
      visit(index, error_word, sorted, index_stride, rows, length, padding);
      return;
    }
    visit(out, index, error_word);
    if (key.by == ScatterBy::kRun) visit(sorted, order);
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
  std::string Name(const ScatterKey& key) const override;
  std::string_view Formula(const ScatterKey& key) const override { return key.row->formula; }
  absl::Status EmitBody(const ScatterKey& key, const ScatterArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans scatters along a dimension, and additions of rows (the gradient of an embedding). The library's
// thread only.
class ScatterPlanner : public Planner {
 public:
  explicit ScatterPlanner(KernelCache& cache) : cache_(cache), sort_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

  struct Scatter;
  struct Lines;

 private:
  absl::StatusOr<Readiness> PlanScatter(const Scatter& scatter, Workspace workspace, LaunchList& launches);
  absl::StatusOr<Readiness> PlanRuns(const Scatter& scatter, const Lines& lines, ScatterKey key,
                                     Workspace workspace, LaunchList& launches);

  KernelCache& cache_;
  SortPlanner sort_;
  const ScatterSkeleton skeleton_;
};

}  // namespace xpud::kernels
