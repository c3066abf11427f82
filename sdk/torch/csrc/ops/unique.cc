// Distinct elements: sorting brings equal ones together, and the starts of the runs are compacted. Each
// operator waits once, for the number of runs. NaN differs from NaN.
#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include <algorithm>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using Results = std::tuple<Tensor, Tensor, Tensor>;  // elements, runs of all elements, lengths of runs

std::tuple<Tensor, Tensor> Sorted(const Tensor& self, int64_t dim) {
  return at::sort(self, /*stable=*/std::optional<bool>(true), dim, /*descending=*/false);
}

Tensor EmptyIndices(const Tensor& like) { return MakeEmpty({0}, at::kLong, like.device()); }

// Returns whether elements 1 .. n - 1 of the first dimension differ from the one before. True for element 0.
Tensor StartsOf(const Tensor& sorted) {
  const int64_t n = sorted.size(0);
  Tensor starts = MakeEmpty({n}, at::kBool, sorted.device());
  starts.narrow(0, 0, std::min<int64_t>(n, 1)).fill_(true);
  if (n < 2) return starts;
  Tensor rest = starts.narrow(0, 1, n - 1);
  const Tensor later = sorted.narrow(0, 1, n - 1), earlier = sorted.narrow(0, 0, n - 1);
  if (sorted.dim() == 1) {
    at::ne_out(rest, later, earlier);
  } else {
    rest.copy_(later.ne(earlier).reshape({n - 1, -1}).any(1));
  }
  return starts;
}

// The number of each element's run.
Tensor RunsOf(const Tensor& starts, int64_t dim = 0) { return starts.cumsum(dim).sub_(1); }

Tensor Lengths(const Tensor& first, int64_t n) {
  const Tensor end = at::full({1}, n, first.options());
  return at::cat({first.narrow(0, 1, first.numel() - 1), end}).sub_(first);
}

// Returns what stands at position i of a permuted sequence in the order of the positions.
Tensor Unpermute(const Tensor& permuted, const Tensor& positions, int64_t dim) {
  return permuted.gather(dim, positions.argsort(/*stable=*/true, dim));
}

// Results of runs whose starts are given. `order` (if defined) has the positions of the sorted elements in
// `self`.
struct Runs {
  Tensor first;            // position of each run's first element
  Tensor inverse, counts;  // empty unless wanted
};
Runs FindRuns(const Tensor& starts, const Tensor& order, bool inverse, bool counts) {
  Runs runs{starts.nonzero().squeeze(1), EmptyIndices(starts), EmptyIndices(starts)};
  if (inverse) runs.inverse = order.defined() ? Unpermute(RunsOf(starts), order, 0) : RunsOf(starts);
  if (counts) runs.counts = Lengths(runs.first, starts.numel());
  return runs;
}

// Returns lines of the first dimension, which becomes dimension `dim`. ATen lays them out line by line.
Tensor Chosen(const Tensor& lines, const Tensor& positions, int64_t dim) {
  return lines.index_select(0, positions).movedim(0, dim);
}

Results Unique2(const Tensor& self, bool sorted, bool inverse, bool counts) {
  if (!IsServed(self, ops::kAllTypes) || self.numel() == 0)
    return FallbackOf<at::_ops::_unique2>::Call(self, sorted, inverse, counts);
  const auto [values, order] = Sorted(Contiguous(self).view({-1}), 0);
  const Runs runs = FindRuns(StartsOf(values), order, inverse, counts);
  return {values.index_select(0, runs.first), inverse ? runs.inverse.view(self.sizes()) : runs.inverse,
          runs.counts};
}

std::tuple<Tensor, Tensor> Unique(const Tensor& self, bool sorted, bool inverse) {
  const auto [elements, runs, counts] = at::_unique2(self, sorted, inverse, /*return_counts=*/false);
  return {elements, runs};
}

Results UniqueDimConsecutive(const Tensor& self, int64_t dim, bool inverse, bool counts) {
  if (!IsServed(self, ops::kAllTypes) || self.numel() == 0)
    return FallbackOf<at::_ops::unique_dim_consecutive>::Call(self, dim, inverse, counts);
  dim = at::maybe_wrap_dim(dim, self.dim());
  const Tensor lines = self.dim() == 0 ? self.view({1}) : self.movedim(dim, 0);
  const Runs runs = FindRuns(StartsOf(lines), {}, inverse, counts);
  return {Chosen(lines, runs.first, dim), runs.inverse, runs.counts};
}

Results UniqueConsecutive(const Tensor& self, bool inverse, bool counts, std::optional<int64_t> dim) {
  if (!IsServed(self, ops::kAllTypes) || self.numel() == 0)
    return FallbackOf<at::_ops::unique_consecutive>::Call(self, inverse, counts, dim);
  if (dim.has_value() && !(self.dim() <= 1)) return UniqueDimConsecutive(self, *dim, inverse, counts);
  if (dim.has_value()) at::maybe_wrap_dim(*dim, self.dim());
  const Tensor flat = Contiguous(self).view({-1});
  const Runs runs = FindRuns(StartsOf(flat), {}, inverse, counts);
  return {flat.index_select(0, runs.first), inverse ? runs.inverse.view(self.sizes()) : runs.inverse,
          runs.counts};
}

// Returns the rank of each element in its column: equal elements have one rank, larger ones a larger one.
Tensor RanksOf(const Tensor& columns) {
  const int64_t n = columns.size(0);
  const auto [values, order] = Sorted(columns, 0);
  Tensor starts = at::ones(values.sizes(), values.options().dtype(at::kBool));
  if (n > 1) starts.narrow(0, 1, n - 1).copy_(values.narrow(0, 1, n - 1).ne(values.narrow(0, 0, n - 1)));
  return Unpermute(RunsOf(starts), order, 0);
}

// Returns the rank of each row of [n, columns] in lexicographic order. Ranks of neighbouring columns are
// combined, until one column is left.
Tensor RanksOfRows(const Tensor& rows) {
  const int64_t n = rows.size(0);
  Tensor ranks = RanksOf(rows);
  while (ranks.size(1) > 1) {
    const int64_t pairs = ranks.size(1) / 2;
    const Tensor even = ranks.narrow(1, 0, 2 * pairs).view({n, pairs, 2});
    Tensor combined = RanksOf(even.select(2, 0).mul(n).add_(even.select(2, 1)));
    if (ranks.size(1) % 2 != 0) combined = at::cat({combined, ranks.narrow(1, 2 * pairs, 1)}, 1);
    ranks = combined.contiguous();
  }
  return ranks.squeeze(1);
}

Results UniqueDim(const Tensor& self, int64_t dim, bool sorted, bool inverse, bool counts) {
  if (!IsServed(self, ops::kAllTypes) || self.numel() == 0 || self.dim() == 0)
    return FallbackOf<at::_ops::unique_dim>::Call(self, dim, sorted, inverse, counts);
  dim = at::maybe_wrap_dim(dim, self.dim());
  const Tensor rows = Contiguous(self.movedim(dim, 0)).view({self.size(dim), -1});
  const auto [ranks, order] = Sorted(RanksOfRows(rows), 0);
  const Runs runs = FindRuns(StartsOf(ranks), order, inverse, counts);
  return {Chosen(self.movedim(dim, 0), order.index_select(0, runs.first), dim), runs.inverse, runs.counts};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_unique", XPUD_FN(Unique));
  m.impl("_unique2", XPUD_FN(Unique2));
  m.impl("unique_dim", XPUD_FN(UniqueDim));
  m.impl("unique_consecutive", XPUD_FN(UniqueConsecutive));
  m.impl("unique_dim_consecutive", XPUD_FN(UniqueDimConsecutive));
}

}  // namespace
}  // namespace xpud::shim
