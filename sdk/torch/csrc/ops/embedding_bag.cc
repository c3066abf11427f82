// Bags of embeddings: sums, means and maxima of rows of a table, their gradients, and renormalization of
// rows.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <tuple>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/scatter.h"
#include "sdk/torch/csrc/engines/segments.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;

constexpr int64_t kSum = 0, kMean = 1, kMax = 2;

const ops::Row& SumRow() {
  static const ops::Row& row = ops::RowOf("xpud::segment_sum");
  return row;
}

// ---- forward ----

struct Bags {
  Tensor indices;  // of the type to which indices and offsets promote
  Segments bounds;
  int64_t count = 0;
};

Bags BagsOf(const Tensor& indices, const Tensor& offsets, bool has_last) {
  const at::ScalarType type =
      indices.scalar_type() == offsets.scalar_type() ? indices.scalar_type() : at::kLong;
  Bags bags;
  bags.indices = ContiguousAs(indices, type);
  const Tensor starts = ContiguousAs(offsets, type);
  bags.count = starts.numel() - (has_last ? 1 : 0);
  bags.bounds.begins = starts.narrow(0, 0, bags.count);
  bags.bounds.ends =
      has_last ? starts.narrow(0, 1, bags.count)
               : at::cat({starts.slice(0, 1),
                          at::full({bags.count > 0 ? 1 : 0}, bags.indices.numel(), starts.options())});
  return bags;
}

// Returns the number of indices in each bag, without padding.
Tensor SizesOf(const Bags& bags, int64_t padding) {
  if (padding < 0) return bags.bounds.ends.sub(bags.bounds.begins);
  const Tensor counted = bags.indices.ne(padding).to(bags.indices.scalar_type()).unsqueeze(1);
  const Tensor sizes = at::zeros({bags.count, 1}, bags.indices.options());
  ReduceSegments(SumRow(), sizes, counted, bags.bounds);
  return sizes.squeeze(1);
}

void CheckBags(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t mode,
               const OptionalTensor& sample_weights, bool has_last) {
  const auto check_index = [](const Tensor& tensor, const char* name) {
    TORCH_CHECK(tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt,
                "Expected tensor for argument #1 '", name,
                "' to have one of the following scalar types: Long, Int; but got ", tensor.toString(),
                " instead (while checking arguments for embedding_bag)");
    TORCH_CHECK(tensor.dim() == 1, "Expected 1-dimensional tensor for argument '", name, "'");
  };
  TORCH_CHECK(weight.dim() == 2, "embedding_bag: Expected 2-dimensional weight");
  check_index(indices, "indices");
  check_index(offsets, "offsets");
  TORCH_CHECK(!has_last || offsets.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
  TORCH_CHECK_INDEX(weight.size(0) > 0 || indices.numel() == 0,
                    "embedding_bag: an index into an empty table");
  if (!IsGiven(sample_weights)) return;
  TORCH_CHECK(mode == kSum, "embedding_bag: per_sample_weights only supported with mode='sum'");
  TORCH_CHECK(sample_weights->scalar_type() == weight.scalar_type(),
              "Expected tensor for argument #1 'weight' to "
              "have the same type as tensor for argument #1 'per_sample_weights'");
  TORCH_CHECK(sample_weights->dim() == 1 && sample_weights->numel() == indices.numel(),
              "embedding_bag: per_sample_weights must have one number for each index");
}

// Returns the maxima and the rows from which they are; an empty bag has zeros.
std::tuple<Tensor, Tensor> Largest(const Tensor& weight, const Bags& bags, int64_t padding) {
  static const ops::Row& row = ops::RowOf("xpud::segment_argmax");
  const Tensor rows = at::full({bags.count, weight.size(1)}, -1, weight.options().dtype(at::kLong));
  ReduceSegments(row, rows, weight, bags.bounds, bags.indices, std::nullopt, padding);
  const Tensor known = rows.clamp_min(0);
  if (weight.size(0) == 0) return {at::zeros(rows.sizes(), weight.options()), known};
  const Tensor out = weight.gather(0, known).masked_fill_(rows.lt(0), 0);
  return {out, known.to(bags.indices.scalar_type())};
}

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// The results are the output, the bag of each index, the sizes of the bags, and the rows of maxima. The
// latter three have the sizes that PyTorch's fake tensors have, and values if `for_gradient`.
Results Compute(const Tensor& weight, const Bags& bags, int64_t offsets, int64_t mode,
                const OptionalTensor& sample_weights, int64_t padding, bool for_gradient) {
  Tensor out, rows = at::empty({0}, bags.indices.options());
  const Tensor sizes = at::zeros({offsets}, bags.indices.options());
  if (mode != kSum) sizes.narrow(0, 0, bags.count).copy_(SizesOf(bags, padding));
  if (mode == kMax) {
    std::tie(out, rows) = Largest(weight, bags, padding);
  } else {
    out = at::zeros({bags.count, weight.size(1)}, weight.options());
    ReduceSegments(SumRow(), out, weight, bags.bounds, bags.indices, sample_weights, padding);
  }
  if (mode == kMean) out.div_(sizes.narrow(0, 0, bags.count).clamp_min(1).unsqueeze(1));
  const Tensor of = for_gradient
                        ? SegmentOf(bags.bounds.begins, bags.indices.numel()).to(bags.indices.scalar_type())
                        : at::empty_like(bags.indices);
  return {out, of, sizes, rows};
}

bool AreServed(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
               const OptionalTensor& sample_weights) {
  return IsServed(weight, ops::kFloatTypes) && IsOnDevice(indices) && IsOnDevice(offsets) &&
         (!IsGiven(sample_weights) || IsOnDevice(*sample_weights));
}

Results EmbeddingBag(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                     bool scale_by_frequency, int64_t mode, bool sparse, const OptionalTensor& sample_weights,
                     bool has_last, int64_t padding) {
  if (!AreServed(weight, indices, offsets, sample_weights)) {
    return FallbackOf<at::_ops::_embedding_bag>::Call(weight, indices, offsets, scale_by_frequency, mode,
                                                      sparse, sample_weights, has_last, padding);
  }
  CheckBags(weight, indices, offsets, mode, sample_weights, has_last);
  return Compute(weight, BagsOf(indices, offsets, has_last), offsets.numel(), mode, sample_weights, padding,
                 true);
}

Results EmbeddingBagForward(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                            bool scale_by_frequency, int64_t mode, bool sparse,
                            const OptionalTensor& sample_weights, bool has_last, int64_t padding) {
  if (!AreServed(weight, indices, offsets, sample_weights)) {
    return FallbackOf<at::_ops::_embedding_bag_forward_only>::Call(
        weight, indices, offsets, scale_by_frequency, mode, sparse, sample_weights, has_last, padding);
  }
  CheckBags(weight, indices, offsets, mode, sample_weights, has_last);
  return Compute(weight, BagsOf(indices, offsets, has_last), offsets.numel(), mode, sample_weights, padding,
                 false);
}

// ---- gradients ----

Tensor InAccumulateType(const Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// Each row of a maximum gets its gradient. An empty bag has none.
Tensor GradientOfMaxima(const Tensor& gradient, const Tensor& sizes, const Tensor& rows, int64_t table) {
  const Tensor out = at::zeros({table, gradient.size(1)}, gradient.options());
  if (gradient.numel() == 0 || table == 0) return out;
  const Tensor is_empty = sizes.narrow(0, 0, gradient.size(0)).eq(0).unsqueeze(1);
  Scatter(Combination::kAdd, out, 0, rows, gradient.masked_fill(is_empty, 0));
  return out;
}

Tensor EmbeddingBagDenseBackward(const Tensor& gradient, const Tensor& indices, const Tensor& bag_of,
                                 const Tensor& sizes, const Tensor& rows, int64_t table,
                                 bool scale_by_frequency, int64_t mode, const OptionalTensor& sample_weights,
                                 int64_t padding) {
  if (!IsServed(gradient, ops::kFloatTypes) || !IsOnDevice(indices)) {
    return FallbackOf<at::_ops::_embedding_bag_dense_backward>::Call(
        gradient, indices, bag_of, sizes, rows, table, scale_by_frequency, mode, sample_weights, padding);
  }
  if (mode == kMax) return GradientOfMaxima(gradient, sizes, rows, table);
  if (indices.numel() == 0) return at::zeros({table, gradient.size(1)}, gradient.options());
  Tensor each = InAccumulateType(gradient).index_select(0, bag_of);
  if (mode == kMean) each.div_(sizes.index_select(0, bag_of).unsqueeze(1));
  if (IsGiven(sample_weights)) each.mul_(sample_weights->unsqueeze(1));
  if (scale_by_frequency) {
    const Tensor counts = at::zeros({table}, indices.options());
    Scatter(Combination::kAdd, counts, 0, indices, at::Scalar(1));
    each.div_(counts.index_select(0, indices).unsqueeze(1));
  }
  return at::embedding_dense_backward(each, indices, table, padding, false).to(gradient.scalar_type());
}

Tensor BagOf(const Tensor& bag_of, const Tensor& indices, const Tensor& offsets) {
  return bag_of.numel() > 0 || indices.numel() == 0 ? bag_of : SegmentOf(offsets, indices.numel());
}

Tensor EmbeddingBagBackward(const Tensor& gradient, const Tensor& indices, const Tensor& offsets,
                            const Tensor& bag_of, const Tensor& sizes, const Tensor& rows, int64_t table,
                            bool scale_by_frequency, int64_t mode, bool sparse,
                            const OptionalTensor& sample_weights, int64_t padding) {
  const Tensor known = BagOf(bag_of, indices, offsets);
  if (sparse) {
    return at::_embedding_bag_sparse_backward(gradient, indices, offsets, known, sizes, table,
                                              scale_by_frequency, mode, sample_weights, padding);
  }
  return at::_embedding_bag_dense_backward(gradient, indices, known, sizes, rows, table, scale_by_frequency,
                                           mode, sample_weights, padding);
}

Tensor SampleWeightsBackward(const Tensor& gradient, const Tensor& weight, const Tensor& indices,
                             const Tensor& offsets, const Tensor& bag_of, int64_t mode, int64_t padding) {
  if (!IsServed(gradient, ops::kFloatTypes) || !IsOnDevice(weight) || !IsOnDevice(indices)) {
    return FallbackOf<at::_ops::_embedding_bag_per_sample_weights_backward>::Call(
        gradient, weight, indices, offsets, bag_of, mode, padding);
  }
  TORCH_CHECK(mode == kSum, "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  if (indices.numel() == 0) return at::zeros({0}, gradient.options());
  const Tensor each = InAccumulateType(gradient).index_select(0, BagOf(bag_of, indices, offsets));
  const Tensor sums = each.mul(InAccumulateType(weight).index_select(0, indices)).sum(1);
  const Tensor out = padding < 0 ? sums : sums.masked_fill(indices.eq(padding), 0);
  return out.to(gradient.scalar_type());
}

// ---- renormalization ----

// Rows of larger norm are scaled to `max_norm`. A row that several indices name gets the same values from
// each.
Tensor& EmbeddingRenorm_(Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  if (!IsServed(self, ops::kFloatTypes) || !IsServed(indices, ops::kIndexTypes))
    return FallbackOf<at::_ops::embedding_renorm_>::Call(self, indices, max_norm, norm_type);
  TORCH_CHECK(self.dim() == 2, "embedding_renorm_: Expected 2-dimensional tensor");
  const Tensor index = Contiguous(indices).view({-1});
  if (index.numel() == 0) return self;
  const Tensor rows = self.index_select(0, index);
  const Tensor norms = at::linalg_vector_norm(rows, norm_type, at::IntArrayRef{1}, /*keepdim=*/true);
  const Tensor scale = at::where(norms.gt(max_norm), norms.add(1e-7).reciprocal_().mul_(max_norm), 1.0);
  Scatter(Combination::kPut, self, 0, IndexAlong(index, 0, rows.sizes()),
          rows.mul(scale).to(self.scalar_type()));
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag", XPUD_FN(EmbeddingBag));
  m.impl("_embedding_bag_forward_only", XPUD_FN(EmbeddingBagForward));
  m.impl("_embedding_bag_backward", XPUD_FN(EmbeddingBagBackward));
  m.impl("_embedding_bag_dense_backward", XPUD_FN(EmbeddingBagDenseBackward));
  m.impl("_embedding_bag_per_sample_weights_backward", XPUD_FN(SampleWeightsBackward));
  m.impl("embedding_renorm_", XPUD_FN(EmbeddingRenorm_));
}

}  // namespace
}  // namespace xpud::shim
