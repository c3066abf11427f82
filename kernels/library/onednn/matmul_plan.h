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

// A CPU can run others' work between two groups of a launch, but not inside one. So neither a tile nor a
// group takes longer than this by the estimate, unless the least tile does (kMinTileRows, all of k).
inline constexpr double kMaxGroupNanoseconds = 0.7e6;
// The same where each tile copies its part of both factors.
inline constexpr double kMaxCopyingNanoseconds = 1.5e6;
inline constexpr int64_t kMinTileRows = 16, kMinTileColumns = 64;

class MatmulPlan {
 public:
  explicit MatmulPlan(const MatmulProblem& problem);

  const MatmulProblem& problem() const { return problem_; }
  int64_t tiles() const { return batch_.count * m_.count * n_.count; }
  double nanoseconds() const { return nanoseconds_; }  // an estimate for the whole product
  double TileNanoseconds() const;                      // of the largest tile
  // Whether b should be packed first: so many rows are worth it, and oneDNN is slow with short tiles of these
  // factors.
  bool WantsPanels() const { return wants_panels_; }
  // Creates all primitives. Returns false if oneDNN lacks one. REQUIRES: problem().panels, which has no other
  // way.
  bool CreatePrimitives() const;

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
  void CutLong(double most_ns, int64_t most_rows, int64_t row_multiple, int64_t column_multiple);
  Tile Locate(int64_t index) const;  // without operands
  const MatmulPrimitive* PrimitiveFor(const Tile& tile, const PanelLayout* panels, bool via_scratch) const;
  bool ViaScratch(const Tile& tile, bool packed) const;
  void RunPrimitive(const MatmulPrimitive& primitive, const Tile& tile, const std::byte* b, bool via_scratch,
                    void* scratch) const;
  void Finish(const Tile& tile, const void* acc, int64_t leading, int64_t batch, int64_t row, int64_t column,
              int64_t rows, int64_t columns) const;
  void Activate(const Tile& tile, std::byte* out, int64_t batch_stride, int64_t row_stride) const;
  void RunFewRows(const Tile& tile, void* scratch) const;
  void RunBlocked(const Tile& tile, void* scratch) const;

  const MatmulProblem problem_;
  bool blocked_ = false;   // our own product: oneDNN lacks the type
  bool few_rows_ = false;  // our own dot products
  bool direct_ = false;    // oneDNN writes results of out's type and adds the bias
  double nanoseconds_ = 0;
  bool wants_panels_ = false;
  Axis batch_, m_, n_;
  PanelLayout panels_;  // of problem_.panels
  // [panels][kind]
  mutable std::array<std::array<Slot, 8>, 2> slots_;
};

}  // namespace xpud::kernels::onednn
