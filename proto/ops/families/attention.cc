#include "proto/ops/families/attention.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// The operands that forward and backward share.
struct Operands {
  const Operand &query, &key, &value, &mask, &out;
  const Operand* logsumexp;  // nullptr: absent
  DType logsumexp_type;
};

absl::Status CheckOperands(const Operands& o) {
  RETURN_IF_ERROR(NeedRank(o.query, "query", 4));
  RETURN_IF_ERROR(NeedRank(o.key, "key", 4));
  RETURN_IF_ERROR(NeedRank(o.value, "value", 4));
  const auto& size = o.query.sizes;
  const int64_t batch = size[0], heads = size[1], queries = size[2], keys = o.key.sizes[2];
  const int64_t key_heads = o.key.sizes[1], value_depth = o.value.sizes[3];
  if (key_heads == 0 || heads % key_heads != 0)
    return absl::InvalidArgumentError(
        absl::StrCat(heads, " query heads are not a multiple of ", key_heads, " key heads"));
  const DType type = o.query.dtype;
  RETURN_IF_ERROR(NeedSizes(o.key, "key", {batch, key_heads, keys, size[3]}));
  RETURN_IF_ERROR(NeedSizes(o.value, "value", {batch, key_heads, keys, value_depth}));
  RETURN_IF_ERROR(NeedSameType(o.key, "key", type));
  RETURN_IF_ERROR(NeedSameType(o.value, "value", type));
  RETURN_IF_ERROR(NeedSameType(o.out, "output", type));
  RETURN_IF_ERROR(NeedSizes(o.out, "output", {batch, heads, queries, value_depth}));
  if (o.logsumexp != nullptr) {
    RETURN_IF_ERROR(NeedSizes(*o.logsumexp, "logsumexp", {batch, heads, queries}));
    RETURN_IF_ERROR(NeedSameType(*o.logsumexp, "logsumexp", o.logsumexp_type));
  }
  if (!o.mask.present) return absl::OkStatus();
  RETURN_IF_ERROR(NeedType(o.mask, "mask", kBoolType | SetOf(type)));
  return NeedSizes(o.mask, "mask", {batch, heads, queries, keys});
}

template <typename Attention>
Operands OperandsOf(const Attention& a, DType logsumexp_type) {
  return {*a.query,      *a.key, *a.value, *a.mask, *a.out, a.logsumexp->present ? a.logsumexp : nullptr,
          logsumexp_type};
}

absl::Status Check(const Call& call) {
  return CheckOperands(OperandsOf(Read<AttentionCall>(call), DType::kFloat32));
}

// logsumexp is as wide as the sums of TrainingAttention.
DType SumType(DType type) { return type == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

absl::Status CheckDropout(double dropout) {
  if (dropout >= 0 && dropout <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dropout probability has to be between 0 and 1, but got ", dropout));
}

// Without columns, an operand of any length would occupy no memory.
absl::Status NeedColumns(const Operand& query, const Operand& value) {
  if (query.rank == 4 && value.rank == 4 && query.sizes[3] > 0 && value.sizes[3] > 0) return absl::OkStatus();
  return Invalid("query and value need four dimensions, the last of at least 1");
}

absl::Status CheckTraining(const Call& call) {
  const auto attention = Read<TrainingAttentionCall>(call);
  RETURN_IF_ERROR(CheckDropout(attention.attributes.dropout));
  RETURN_IF_ERROR(NeedColumns(*attention.query, *attention.value));
  return CheckOperands(OperandsOf(attention, SumType(attention.query->dtype)));
}

absl::Status CheckGradient(const Operand& gradient, const Operand& of, const char* role, DType type) {
  RETURN_IF_ERROR(NeedSameSizes(gradient, of, role));
  return NeedSameType(gradient, role, type);
}

absl::Status CheckBackward(const Call& call) {
  const auto backward = Read<AttentionBackwardCall>(call);
  const DType type = backward.query->dtype;
  RETURN_IF_ERROR(CheckDropout(backward.attributes.dropout));
  RETURN_IF_ERROR(NeedColumns(*backward.query, *backward.value));
  RETURN_IF_ERROR(CheckOperands(OperandsOf(backward, SumType(type))));
  RETURN_IF_ERROR(CheckGradient(*backward.gradient, *backward.out, "gradient", type));
  RETURN_IF_ERROR(CheckGradient(*backward.query_gradient, *backward.query, "query's gradient", type));
  RETURN_IF_ERROR(CheckGradient(*backward.key_gradient, *backward.key, "key's gradient", type));
  return CheckGradient(*backward.value_gradient, *backward.value, "value's gradient", type);
}

template <template <typename> class Attention>
absl::Status InferForward(const Call& call, std::span<Operand> outputs, DType logsumexp_type) {
  const auto attention = Read<Attention>(call);
  const auto to = Outputs<Attention>(outputs);
  const Operand &q = *attention.query, &v = *attention.value;
  RETURN_IF_ERROR(NeedRank(q, "query", 4));
  RETURN_IF_ERROR(NeedRank(v, "value", 4));
  SetOutput(*to.out, q.dtype, {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]});
  if (to.logsumexp != nullptr) SetOutput(*to.logsumexp, logsumexp_type, {q.sizes[0], q.sizes[1], q.sizes[2]});
  return absl::OkStatus();
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  return InferForward<AttentionCall>(call, outputs, DType::kFloat32);
}
absl::Status InferTraining(const Call& call, std::span<Operand> outputs) {
  return InferForward<TrainingAttentionCall>(call, outputs,
                                             SumType(Read<TrainingAttentionCall>(call).query->dtype));
}
absl::Status InferBackward(const Call& call, std::span<Operand> outputs) {
  const auto backward = Read<AttentionBackwardCall>(call);
  const auto to = Outputs<AttentionBackwardCall>(outputs);
  SetOutputLike(*to.query_gradient, *backward.query);
  SetOutputLike(*to.key_gradient, *backward.key);
  SetOutputLike(*to.value_gradient, *backward.value);
  return absl::OkStatus();
}

double Products(const Call& call) {
  const auto attention = Read<AttentionCall>(call);
  return static_cast<double>(attention.query->numel()) * static_cast<double>(attention.key->sizes[2]);
}

// Scores, with `kOthers` operations beside the products.
double Scores(const Operand& query, const Operand& key) {
  return static_cast<double>(query.sizes[0]) * static_cast<double>(query.sizes[1]) *
         static_cast<double>(query.sizes[2]) * static_cast<double>(key.sizes[2]);
}
constexpr double kOthers = 16;

double TrainingCost(const Call& call) {
  const auto attention = Read<TrainingAttentionCall>(call);
  const Operand &q = *attention.query, &v = *attention.value;
  const double depths = static_cast<double>(q.sizes[3]) + static_cast<double>(v.sizes[3]);
  return Scores(q, *attention.key) * (depths + kOthers);
}

// Three products over the depth, two over the value's depth.
double BackwardCost(const Call& call) {
  const auto backward = Read<AttentionBackwardCall>(call);
  const Operand &q = *backward.query, &v = *backward.value;
  const double depths = 3 * static_cast<double>(q.sizes[3]) + 2 * static_cast<double>(v.sizes[3]);
  return Scores(q, *backward.key) * (depths + kOthers);
}

Sample::Tensor SampleTensor(DType type) { return {{1, 1, 2, 8}, type}; }
Sample::Tensor SampleMask(DType type) { return {{1, 1, 2, 2}, type}; }
Sample::Tensor SampleLogsumexp(DType type) { return {{1, 1, 2}, type}; }
constexpr TrainingAttributes kSampleAttributes = {.scale = 1, .dropout = 0.25, .seed = 7};

Sample MakeSample(const Row&, DType type) {
  const Sample::Tensor tensor = SampleTensor(type);
  return SampleOf(AttentionCall<Sample::Tensor>{.out = tensor,
                                                .logsumexp = SampleLogsumexp(DType::kFloat32),
                                                .query = tensor,
                                                .key = tensor,
                                                .value = tensor,
                                                .mask = SampleMask(type),
                                                .scale = 1});
}

Sample MakeTrainingSample(const Row&, DType type) {
  const Sample::Tensor tensor = SampleTensor(type);
  return SampleOf(TrainingAttentionCall<Sample::Tensor>{.out = tensor,
                                                        .logsumexp = SampleLogsumexp(SumType(type)),
                                                        .query = tensor,
                                                        .key = tensor,
                                                        .value = tensor,
                                                        .mask = SampleMask(type),
                                                        .attributes = kSampleAttributes});
}

Sample MakeBackwardSample(const Row&, DType type) {
  const Sample::Tensor tensor = SampleTensor(type);
  return SampleOf(AttentionBackwardCall<Sample::Tensor>{.query_gradient = tensor,
                                                        .key_gradient = tensor,
                                                        .value_gradient = tensor,
                                                        .gradient = tensor,
                                                        .query = tensor,
                                                        .key = tensor,
                                                        .value = tensor,
                                                        .out = tensor,
                                                        .logsumexp = SampleLogsumexp(SumType(type)),
                                                        .mask = SampleMask(type),
                                                        .attributes = kSampleAttributes});
}

}  // namespace

constinit const FamilyDescriptor kAttentionFamily = Described<AttentionCall>({.name = "attention",
                                                                              .title = "attention",
                                                                              .check = Check,
                                                                              .infer = Infer,
                                                                              .cost = Products,
                                                                              .sample = MakeSample});

constinit const FamilyDescriptor kTrainingAttentionFamily =
    Described<TrainingAttentionCall>({.name = "training_attention",
                                      .title = "attention with dropout",
                                      .check = CheckTraining,
                                      .infer = InferTraining,
                                      .cost = TrainingCost,
                                      .sample = MakeTrainingSample});

constinit const FamilyDescriptor kAttentionBackwardFamily =
    Described<AttentionBackwardCall>({.name = "attention_backward",
                                      .title = "gradients of attention",
                                      .typed_input = 1,
                                      .check = CheckBackward,
                                      .infer = InferBackward,
                                      .cost = BackwardCost,
                                      .sample = MakeBackwardSample});

}  // namespace xpud::ops
