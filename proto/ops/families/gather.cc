#include "proto/ops/families/gather.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

bool Selects(const Operand& self, const Operand& index) { return index.rank == 1 && self.rank != 1; }

absl::Status CheckGather(const Call& call) {
  const auto gather = Read<GatherCall>(call);
  const Operand &out = *gather.out, &self = *gather.self, &index = *gather.index;
  ASSIGN_OR_RETURN(const int dim, DimensionOf(gather.dim, self));
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
  const auto gather = Read<GatherCall>(call);
  const Operand &self = *gather.self, &index = *gather.index;
  ASSIGN_OR_RETURN(const int dim, DimensionOf(gather.dim, self));
  const bool selects = Selects(self, index);
  Operand& out = *Outputs<GatherCall>(outputs).out;
  SetOutputLike(out, selects ? self : index);
  out.dtype = self.dtype;
  if (selects && self.rank > 0) out.sizes[dim] = index.sizes[0];
  return absl::OkStatus();
}

int64_t LimitOfGather(const Call& call) {
  const auto gather = Read<GatherCall>(call);
  return gather.self->rank == 0 ? 1 : gather.self->sizes[gather.dim];
}

Sample SampleOfGather(const Row&, DType type) {
  const Sample::Tensor tensor = {{2, 3}, type};
  return SampleOf(
      GatherCall<Sample::Tensor>{.out = tensor, .self = tensor, .index = {{2, 3}, DType::kInt64}});
}

absl::Status NeedMatrixAndIndex(const EmbeddingCall<Given>& embedding) {
  RETURN_IF_ERROR(NeedRank(*embedding.weight, "weight", 2));
  return NeedRank(*embedding.index, "index", 1);
}

absl::Status CheckEmbedding(const Call& call) {
  const auto embedding = Read<EmbeddingCall>(call);
  RETURN_IF_ERROR(NeedMatrixAndIndex(embedding));
  RETURN_IF_ERROR(NeedSameType(*embedding.out, "output", embedding.weight->dtype));
  return NeedSizes(*embedding.out, "output", {embedding.index->sizes[0], embedding.weight->sizes[1]});
}

absl::Status InferEmbedding(const Call& call, std::span<Operand> outputs) {
  const auto embedding = Read<EmbeddingCall>(call);
  RETURN_IF_ERROR(NeedMatrixAndIndex(embedding));
  SetOutput(*Outputs<EmbeddingCall>(outputs).out, embedding.weight->dtype,
            {embedding.index->sizes[0], embedding.weight->sizes[1]});
  return absl::OkStatus();
}

int64_t LimitOfEmbedding(const Call& call) { return Read<EmbeddingCall>(call).weight->sizes[0]; }

Sample SampleOfEmbedding(const Row&, DType type) {
  return SampleOf(EmbeddingCall<Sample::Tensor>{
      .out = {{2, 3}, type}, .weight = {{4, 3}, type}, .index = {{2}, DType::kInt64}});
}

}  // namespace

constinit const FamilyDescriptor kGatherFamily = Described<GatherCall>({.name = "gather",
                                                                        .title = "gather",
                                                                        .check = CheckGather,
                                                                        .infer = InferGather,
                                                                        .index_limit = LimitOfGather,
                                                                        .sample = SampleOfGather});
constinit const FamilyDescriptor kEmbeddingFamily = Described<EmbeddingCall>({.name = "embedding",
                                                                              .title = "embedding",
                                                                              .check = CheckEmbedding,
                                                                              .infer = InferEmbedding,
                                                                              .index_limit = LimitOfEmbedding,
                                                                              .sample = SampleOfEmbedding});

}  // namespace xpud::ops
