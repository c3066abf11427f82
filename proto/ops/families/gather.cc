// Gather along `dim`: out[self's sizes, dim replaced by the index's length] <- self, index of rank 1
// (index_select), or out[index's sizes] <- self, index of self's rank (gather). Embedding: out[N,D] <-
// weight[V,D], index[N].
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out"}};
constexpr Parameter kSelfAndIndex[] = {{"self"}, {"index", kIndices}};
constexpr Parameter kWeightAndIndex[] = {{"weight"}, {"index", kIndices}};
constexpr Attribute kDim[] = {{"dim", AttributeType::kDimension}};

bool Selects(const Operand& self, const Operand& index) { return index.rank == 1 && self.rank != 1; }

absl::Status CheckGather(const Call& call) {
  const Operand &out = call.outputs[0], &self = call.inputs[0], &index = call.inputs[1];
  ASSIGN_OR_RETURN(const int dim, DimensionOf(call, self));
  RETURN_IF_ERROR(NeedSameType(out, "output", self.dtype));
  RETURN_IF_ERROR(NeedRank(out, "output", self.rank));
  const bool selects = Selects(self, index);
  if (!selects && !HasSameSizes(index, out)) {
    return absl::InvalidArgumentError(
        absl::StrCat("output ", Describe(out), " for an index ", Describe(index)));
  }
  if (self.rank == 0 && index.numel() != 1)
    return absl::InvalidArgumentError(absl::StrCat("an index ", Describe(index), " into a scalar"));
  for (int d = 0; d < self.rank; ++d) {
    const int64_t wanted = d == dim ? (selects ? index.sizes[0] : out.sizes[d]) : self.sizes[d];
    if (selects ? out.sizes[d] != wanted : (d != dim && out.sizes[d] > wanted)) {
      return absl::InvalidArgumentError(
          absl::StrCat("output ", Describe(out), " does not fit input ", Describe(self)));
    }
  }
  return absl::OkStatus();
}

absl::Status InferGather(const Call& call, std::span<Operand> outputs) {
  const Operand &self = call.inputs[0], &index = call.inputs[1];
  ASSIGN_OR_RETURN(const int dim, DimensionOf(call, self));
  const bool selects = Selects(self, index);
  SetOutputLike(outputs[0], selects ? self : index);
  outputs[0].dtype = self.dtype;
  if (selects && self.rank > 0) outputs[0].sizes[dim] = index.sizes[0];
  return absl::OkStatus();
}

int64_t LimitOfGather(const Call& call) {
  const Operand& self = call.inputs[0];
  return self.rank == 0 ? 1 : self.sizes[call.attributes[0].AsInteger()];
}

absl::Status CheckEmbedding(const Call& call) {
  const Operand &weight = call.inputs[0], &index = call.inputs[1];
  RETURN_IF_ERROR(NeedRank(weight, "weight", 2));
  RETURN_IF_ERROR(NeedRank(index, "index", 1));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "output", weight.dtype));
  return NeedSizes(call.outputs[0], "output", {index.sizes[0], weight.sizes[1]});
}

absl::Status InferEmbedding(const Call& call, std::span<Operand> outputs) {
  const Operand &weight = call.inputs[0], &index = call.inputs[1];
  RETURN_IF_ERROR(NeedRank(weight, "weight", 2));
  RETURN_IF_ERROR(NeedRank(index, "index", 1));
  SetOutput(outputs[0], weight.dtype, {index.sizes[0], weight.sizes[1]});
  return absl::OkStatus();
}

int64_t LimitOfEmbedding(const Call& call) { return call.inputs[0].sizes[0]; }

}  // namespace

constinit const FamilyDescriptor kGatherFamily = {
    .name = "gather",
    .title = "gather",
    .outputs = kOut,
    .inputs = kSelfAndIndex,
    .attributes = kDim,
    .check = CheckGather,
    .infer = InferGather,
    .index_limit = LimitOfGather,
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{2, 3}, type}}, {{{2, 3}, type}, {{2, 3}, DType::kInt64}}, {Number::Integer(0)}};
    }};
constinit const FamilyDescriptor kEmbeddingFamily = {
    .name = "embedding",
    .title = "embedding",
    .outputs = kOut,
    .inputs = kWeightAndIndex,
    .check = CheckEmbedding,
    .infer = InferEmbedding,
    .index_limit = LimitOfEmbedding,
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{2, 3}, type}}, {{{4, 3}, type}, {{2}, DType::kInt64}}, {}};
    }};

}  // namespace xpud::ops
