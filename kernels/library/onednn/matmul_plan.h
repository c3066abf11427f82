// How one MatmulProblem is computed: the tiles that it is cut into and the primitives for them.
//
// The tiles follow from the problem alone, never from the number of workers, so results do not depend on it.
// Primitives are made by the worker that first needs one, not by the thread that plans.
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "kernels/library/matmul/matmul_problem.h"
#include "kernels/library/onednn/packed_weights.h"
#include "kernels/library/onednn/primitive.h"

namespace xpud::kernels::onednn {

// On a CPU others may run between two groups of a launch, not in the midst of one. So where a product takes
// longer than a second, one tile is a group, and takes no longer than some tens of milliseconds.
inline constexpr double kLongNanoseconds = 1e9, kMaxTileNanoseconds = 10e6;

class MatmulPlan {
 public:
  explicit MatmulPlan(const MatmulProblem& problem);

  const MatmulProblem& problem() const { return problem_; }
  int64_t tiles() const { return batch_.count * m_.count * n_.count; }
  double nanoseconds() const { return nanoseconds_; }  // an estimate, for the whole

  // Computes tile `index`. `packed` may be nullptr, or not ready. Any worker; `scratch` is the worker's.
  void RunTile(int64_t index, const MatmulOperands& operands, const PackedWeights* packed,
               void* scratch) const;

 private:
  struct Axis {
    int64_t size = 1, tile = 1, count = 1;
    int64_t Begin(int64_t i) const { return i * tile; }
    int64_t Length(int64_t i) const { return std::min(tile, size - i * tile); }
  };
  // Where a tile lies, and the operands at its corner.
  struct Tile {
    int64_t batch, m, n;  // first of each
    int64_t batches, rows, columns;
    int kind;  // which of the axes is at its shorter end: a bit each
    MatmulOperands at;
  };
  struct Slot {
    std::once_flag once;
    std::unique_ptr<MatmulPrimitive> primitive;
  };

  void ChooseTiles();
  void CutAxis(Axis& axis, int64_t count, int64_t multiple);
  Tile Locate(int64_t index, const MatmulOperands& operands) const;
  const MatmulPrimitive* PrimitiveFor(const Tile& tile, const PackedWeights* packed, bool via_scratch) const;
  bool ViaScratch(const Tile& tile, bool packed) const;
  void RunPrimitive(const MatmulPrimitive& primitive, const Tile& tile, const PackedWeights* packed,
                    bool via_scratch, void* scratch) const;
  void Finish(const Tile& tile, const void* acc, int64_t leading, int64_t batch, int64_t row, int64_t column,
              int64_t rows, int64_t columns) const;
  void RunFewRows(const Tile& tile, void* scratch) const;
  void RunBlocked(const Tile& tile, void* scratch) const;

  const MatmulProblem problem_;
  bool blocked_ = false;   // our own product: no oneDNN for the type
  bool few_rows_ = false;  // our own dot products
  bool direct_ = false;    // oneDNN does the epilogue
  double nanoseconds_ = 0;
  Axis batch_, m_, n_;
  // [packed][kind]
  mutable std::array<std::array<Slot, 8>, 2> slots_;
};

}  // namespace xpud::kernels::onednn
