// Indexing by tensors, as in x[:, i, mask]: which elements are meant. Used by index.Tensor and index_put_.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace xpud::shim {

// Adds `size` to negative positions. A position out of range stays out of range, and an error names it: as
// one of `dim`, or of a tensor seen as a line (ops::kNoDimension).
at::Tensor WrapIndex(const at::Tensor& index, int64_t size, int64_t dim);

// The indexed dimensions of a tensor, merged into one.
struct Positions {
  at::Tensor view;  // the tensor; the indexed dimensions are adjacent from dimension `first` on
  std::vector<at::Tensor> indices;  // int64 or int32, of one shape, for each of these dimensions
  std::vector<int64_t> dims;        // which dimension of the tensor each of them was
  int64_t first = 0;
  bool moved = false;  // the indexed dimensions were not adjacent, and were moved to the front

  at::Tensor index;                     // int64: positions in the merged dimension
  int64_t merged = 1;                   // its size
  c10::SmallVector<int64_t, 8> flat;    // sizes of the view with the dimensions merged
  c10::SmallVector<int64_t, 8> result;  // sizes of what is indexed
};

// Finds the positions that `indices` name in `self`, with ATen's errors. A mask is replaced by the indices of
// its true elements, for which the call waits. REQUIRES: an index is defined.
Positions FindPositions(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices);

// Returns true for complex numbers that may be indexed as pairs of real ones. Too many indices are left to
// ATen's error: they would select parts.
bool CanIndexPairs(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices);

}  // namespace xpud::shim
