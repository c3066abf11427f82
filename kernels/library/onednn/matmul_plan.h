// How one MatmulProblem is computed: its tiles, and the primitives for them.
//
// The problem alone determines the tiles, so results do not depend on the number of workers. The worker that
// first needs a primitive creates it, not the planning thread.
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "kernels/library/matmul/matmul_problem.h"
#include "kernels/library/onednn/packed_matrix.h"
#include "kernels/library/onednn/primitive.h"

namespace xpud::kernels::onednn {

// A CPU can run others' work between two groups of a launch, but not inside one. So if a product takes longer
// than a second, each group is one tile, of at most some tens of milliseconds.
inline constexpr double kLongNanoseconds = 1e9, kMaxTileNanoseconds = 10e6;

class MatmulPlan {
 public:
  explicit MatmulPlan(const MatmulProblem& problem);

  const MatmulProblem& problem() const { return problem_; }
  int64_t tiles() const { return batch_.count * m_.count * n_.count; }
  double nanoseconds() const { return nanoseconds_; }  // an estimate for the whole product

  // Computes tile `index`. `packed` may be nullptr, or not ready. Any worker may call it; `scratch` is the
  // worker's.
  void RunTile(int64_t index, const MatmulOperands& operands, const PackedMatrix* packed,
               void* scratch) const;

 private:
  struct Axis {
    int64_t size = 1, tile = 1, count = 1;
    int64_t Begin(int64_t i) const { return i * tile; }
    int64_t Length(int64_t i) const { return std::min(tile, size - i * tile); }
  };
  // The position of a tile, and the operands at its corner.
  struct Tile {
    int64_t batch, m, n;  // first index of each
    int64_t batches, rows, columns;
    int kind;  // which axes are at their shorter end; one bit each
    MatmulOperands at;
  };
  struct Slot {
    std::once_flag once;
    std::unique_ptr<MatmulPrimitive> primitive;
  };

  void ChooseTiles();
  void CutAxis(Axis& axis, int64_t count, int64_t multiple);
  Tile Locate(int64_t index, const MatmulOperands& operands) const;
  const MatmulPrimitive* PrimitiveFor(const Tile& tile, const PackedMatrix* packed, bool via_scratch) const;
  bool ViaScratch(const Tile& tile, bool packed) const;
  void RunPrimitive(const MatmulPrimitive& primitive, const Tile& tile, const PackedMatrix* packed,
                    bool via_scratch, void* scratch) const;
  void Finish(const Tile& tile, const void* acc, int64_t leading, int64_t batch, int64_t row, int64_t column,
              int64_t rows, int64_t columns) const;
  void RunFewRows(const Tile& tile, void* scratch) const;
  void RunBlocked(const Tile& tile, void* scratch) const;

  const MatmulProblem problem_;
  bool blocked_ = false;   // our own product: oneDNN lacks the type
  bool few_rows_ = false;  // our own dot products
  bool direct_ = false;    // oneDNN runs the epilogue
  double nanoseconds_ = 0;
  Axis batch_, m_, n_;
  // [packed][kind]
  mutable std::array<std::array<Slot, 8>, 2> slots_;
};

}  // namespace xpud::kernels::onednn
