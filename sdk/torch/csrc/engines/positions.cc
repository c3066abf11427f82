#include "sdk/torch/csrc/engines/positions.h"

#include <ATen/ATen.h>
#include <ATen/native/IndexingUtils.h>

#include "proto/ops/invalid_index.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {

using at::Tensor;

namespace {

// Appends the index of a dimension to the position in the dimensions before it.
void AppendIndex(const MapInput& position, const Tensor& index, int64_t size, int64_t dim,
                 const Tensor& out) {
  static const ops::Row& row = ops::RowOf("xpud::index_position");
  const MapInput inputs[] = {
      position, index, {size, false}, {ops::InvalidIndexBase(static_cast<int>(dim)), false}};
  LaunchMap(row, ops::DType::kInt64, {&out, 1}, inputs);
}

std::vector<Tensor> BroadcastIndices(const std::vector<Tensor>& indices) {
  try {
    return at::broadcast_tensors(indices);
  } catch (const c10::Error&) {
    std::string shapes;
    for (const Tensor& index : indices) shapes += (shapes.empty() ? "" : ", ") + c10::str(index.sizes());
    TORCH_CHECK_INDEX(false, "shape mismatch: indexing tensors could not be broadcast together with shapes ",
                      shapes);
  }
}

// Returns the indices, one for each dimension of `self`; undefined where a dimension is not indexed.
std::vector<Tensor> Expand(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  at::native::checkIndexTensorTypes(indices, /*allow_int=*/true);
  std::vector<Tensor> expanded =
      at::native::expandTensors(self, c10::List<std::optional<Tensor>>(indices), /*ensure_same_device=*/true);
  TORCH_CHECK_INDEX(static_cast<int64_t>(expanded.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ", expanded.size(), ")");
  expanded.resize(static_cast<size_t>(self.dim()));
  return expanded;
}

// Sets the view, its indices and where they begin.
void Arrange(const Tensor& self, const std::vector<Tensor>& expanded, Positions& positions) {
  std::vector<int64_t> order;
  int64_t last = -1;
  positions.first = -1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!expanded[static_cast<size_t>(d)].defined()) continue;
    if (positions.first < 0) positions.first = d;
    positions.moved |= last >= 0 && d != last + 1;
    last = d;
    order.push_back(d);
    positions.dims.push_back(d);
    positions.indices.push_back(expanded[static_cast<size_t>(d)]);
  }
  positions.view = self;
  if (!positions.moved) return;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (!expanded[static_cast<size_t>(d)].defined()) order.push_back(d);
  positions.view = self.permute(order);
  positions.first = 0;
}

void Merge(Positions& positions) {
  bool empty = false;
  for (size_t i = 0; i < positions.indices.size(); ++i) {
    const int64_t size = positions.view.size(positions.first + static_cast<int64_t>(i));
    empty |= size == 0;
    positions.merged *= size;
  }
  TORCH_CHECK_INDEX(!empty || positions.indices[0].numel() == 0,
                    "index is out of bounds for dimension with size 0");
  for (size_t i = 0; i < positions.indices.size(); ++i) {
    const int64_t size = positions.view.size(positions.first + static_cast<int64_t>(i));
    const Tensor& index = positions.indices[i];
    if (i == 0) {
      positions.index = WrapIndex(index, size, positions.dims[i]);
    } else {
      AppendIndex(positions.index, index, size, positions.dims[i], positions.index);
    }
  }
}

}  // namespace

Tensor WrapIndex(const Tensor& index, int64_t size, int64_t dim) {
  const Tensor out = MakeEmpty(index.sizes(), at::kLong, index.device());
  AppendIndex({0, false}, index, size, dim, out);
  return out;
}

Positions FindPositions(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  Positions positions;
  Arrange(self, Expand(self, indices), positions);
  positions.indices = BroadcastIndices(positions.indices);
  Merge(positions);
  const c10::IntArrayRef sizes = positions.view.sizes();
  const size_t first = static_cast<size_t>(positions.first), last = first + positions.indices.size();
  positions.flat.append(sizes.begin(), sizes.begin() + first);
  positions.result = positions.flat;
  positions.flat.push_back(positions.merged);
  positions.result.append(positions.index.sizes().begin(), positions.index.sizes().end());
  positions.flat.append(sizes.begin() + last, sizes.end());
  positions.result.append(sizes.begin() + last, sizes.end());
  return positions;
}

bool CanIndexPairs(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  if (!IsOnDevice(self) ||
      (self.scalar_type() != at::kComplexFloat && self.scalar_type() != at::kComplexDouble))
    return false;
  int64_t indexed = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    const std::optional<Tensor> index = indices.get(d);
    const bool mask = index.has_value() && index->defined() &&
                      (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
    indexed += mask ? index->dim() : 1;
  }
  return indexed <= self.dim() && self.dim() < ops::kMaxRank;
}

}  // namespace xpud::shim
