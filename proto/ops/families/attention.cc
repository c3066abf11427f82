// Scaled dot product attention and its gradients.
//
// Attention: out[B,H,S,E], logsumexp?[B,H,S] f32 <- query[B,H,S,D], key[B,Hk,T,D], value[B,Hk,T,E],
// mask?[B,H,S,T] (strides 0 to broadcast; bool, or the query's type and added to scores). Hk divides H.
// `is_causal` is upper-left aligned. If a query may attend to no key, its out and logsumexp are 0.
//
// TrainingAttention: the same with dropout of weights; logsumexp is f64 for f64. The weight of query s and
// key t is 0 if rand(seed, offset) of op_table.h, in f32 for all types, is below `dropout` for element
// i = ((b H + h) S + s) T + t; otherwise it is divided by 1 - dropout.
//
// AttentionBackward: query_gradient, key_gradient, value_gradient <- gradient[B,H,S,E] of out, the inputs
// and results of TrainingAttention, with the same attributes. Gradients have the inputs' shapes: those of
// keys and values are sums over the query heads that share them. A query that may attend to no key
// contributes 0.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOutputs[] = {{"out"}, {"logsumexp", kOptional}};
constexpr Parameter kInputs[] = {{"query"}, {"key"}, {"value"}, {"mask", kOptional}};
constexpr Attribute kAttributes[] = {{"scale", AttributeType::kReal}, {"is_causal", AttributeType::kBool}};
constexpr Attribute kTrainingAttributes[] = {{"scale", AttributeType::kReal},
                                             {"is_causal", AttributeType::kBool},
                                             {"dropout", AttributeType::kReal},
                                             {"seed", AttributeType::kInteger},
                                             {"offset", AttributeType::kInteger}};
constexpr Parameter kGradients[] = {{"query_gradient"}, {"key_gradient"}, {"value_gradient"}};
constexpr Parameter kBackwardInputs[] = {{"gradient"},  {"query"},          {"key"}, {"value"}, {"out"},
                                         {"logsumexp"}, {"mask", kOptional}};

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

absl::Status CheckForward(const Call& call, DType logsumexp_type) {
  const bool has_logsumexp = call.outputs.size() > 1 && call.outputs[1].present;
  return CheckOperands({call.inputs[0], call.inputs[1], call.inputs[2], call.inputs[3], call.outputs[0],
                        has_logsumexp ? &call.outputs[1] : nullptr, logsumexp_type});
}

absl::Status Check(const Call& call) { return CheckForward(call, DType::kFloat32); }

// logsumexp is as wide as the sums of TrainingAttention.
DType SumType(DType type) { return type == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

absl::Status CheckDropout(const Call& call) {
  const double dropout = call.attributes.size() > 2 ? call.attributes[2].AsReal() : std::nan("");
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
  RETURN_IF_ERROR(CheckDropout(call));
  RETURN_IF_ERROR(NeedColumns(call.inputs[0], call.inputs[2]));
  return CheckForward(call, SumType(call.inputs[0].dtype));
}

absl::Status CheckBackward(const Call& call) {
  RETURN_IF_ERROR(CheckDropout(call));
  const Operand &gradient = call.inputs[0], &query = call.inputs[1];
  RETURN_IF_ERROR(NeedColumns(query, call.inputs[3]));
  RETURN_IF_ERROR(CheckOperands({query, call.inputs[2], call.inputs[3], call.inputs[6], call.inputs[4],
                                 &call.inputs[5], SumType(query.dtype)}));
  RETURN_IF_ERROR(NeedSameSizes(gradient, call.inputs[4], "gradient"));
  RETURN_IF_ERROR(NeedSameType(gradient, "gradient", query.dtype));
  constexpr const char* kRoles[] = {"query's gradient", "key's gradient", "value's gradient"};
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    RETURN_IF_ERROR(NeedSameSizes(call.outputs[i], call.inputs[i + 1], kRoles[i]));
    RETURN_IF_ERROR(NeedSameType(call.outputs[i], kRoles[i], query.dtype));
  }
  return absl::OkStatus();
}

absl::Status InferForward(const Call& call, std::span<Operand> outputs, DType logsumexp_type) {
  const Operand &q = call.inputs[0], &v = call.inputs[2];
  RETURN_IF_ERROR(NeedRank(q, "query", 4));
  RETURN_IF_ERROR(NeedRank(v, "value", 4));
  SetOutput(outputs[0], q.dtype, {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]});
  if (outputs.size() > 1) SetOutput(outputs[1], logsumexp_type, {q.sizes[0], q.sizes[1], q.sizes[2]});
  return absl::OkStatus();
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  return InferForward(call, outputs, DType::kFloat32);
}
absl::Status InferTraining(const Call& call, std::span<Operand> outputs) {
  return InferForward(call, outputs, SumType(call.inputs[0].dtype));
}
absl::Status InferBackward(const Call& call, std::span<Operand> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) SetOutputLike(outputs[i], call.inputs[i + 1]);
  return absl::OkStatus();
}

double Products(const Call& call) {
  return static_cast<double>(call.inputs[0].numel()) * static_cast<double>(call.inputs[1].sizes[2]);
}

// Scores, with `kOthers` operations beside the products.
double Scores(const Operand& query, const Operand& key) {
  return static_cast<double>(query.sizes[0]) * static_cast<double>(query.sizes[1]) *
         static_cast<double>(query.sizes[2]) * static_cast<double>(key.sizes[2]);
}
constexpr double kOthers = 16;

double TrainingCost(const Call& call) {
  const Operand &q = call.inputs[0], &v = call.inputs[2];
  const double depths = static_cast<double>(q.sizes[3]) + static_cast<double>(v.sizes[3]);
  return Scores(q, call.inputs[1]) * (depths + kOthers);
}

// Three products over the depth, two over the value's depth.
double BackwardCost(const Call& call) {
  const Operand &q = call.inputs[1], &v = call.inputs[3];
  const double depths = 3 * static_cast<double>(q.sizes[3]) + 2 * static_cast<double>(v.sizes[3]);
  return Scores(q, call.inputs[2]) * (depths + kOthers);
}

Sample::Tensor SampleTensor(DType type) { return {{1, 1, 2, 8}, type}; }

Sample MakeSample(const Row&, DType type) {
  const Sample::Tensor tensor = SampleTensor(type);
  return {.outputs = {tensor, {{1, 1, 2}, DType::kFloat32}},
          .inputs = {tensor, tensor, tensor, {{1, 1, 2, 2}, type}},
          .attributes = {Number::Real(1), Number::Integer(0)}};
}

std::vector<Number> TrainingSampleAttributes() {
  return {Number::Real(1), Number::Integer(0), Number::Real(0.25), Number::Integer(7), Number::Integer(0)};
}

Sample MakeTrainingSample(const Row&, DType type) {
  const Sample::Tensor tensor = SampleTensor(type);
  return {.outputs = {tensor, {{1, 1, 2}, SumType(type)}},
          .inputs = {tensor, tensor, tensor, {{1, 1, 2, 2}, type}},
          .attributes = TrainingSampleAttributes()};
}

Sample MakeBackwardSample(const Row&, DType type) {
  const Sample::Tensor tensor = SampleTensor(type);
  return {
      .outputs = {tensor, tensor, tensor},
      .inputs = {tensor, tensor, tensor, tensor, tensor, {{1, 1, 2}, SumType(type)}, {{1, 1, 2, 2}, type}},
      .attributes = TrainingSampleAttributes()};
}

}  // namespace

constinit const FamilyDescriptor kAttentionFamily = {.name = "attention",
                                                     .title = "attention",
                                                     .outputs = kOutputs,
                                                     .inputs = kInputs,
                                                     .attributes = kAttributes,
                                                     .check = Check,
                                                     .infer = Infer,
                                                     .cost = Products,
                                                     .sample = MakeSample};

constinit const FamilyDescriptor kTrainingAttentionFamily = {.name = "training_attention",
                                                             .title = "attention with dropout",
                                                             .outputs = kOutputs,
                                                             .inputs = kInputs,
                                                             .attributes = kTrainingAttributes,
                                                             .check = CheckTraining,
                                                             .infer = InferTraining,
                                                             .cost = TrainingCost,
                                                             .sample = MakeTrainingSample};

constinit const FamilyDescriptor kAttentionBackwardFamily = {.name = "attention_backward",
                                                             .title = "gradients of attention",
                                                             .outputs = kGradients,
                                                             .inputs = kBackwardInputs,
                                                             .attributes = kTrainingAttributes,
                                                             .typed_input = 1,
                                                             .check = CheckBackward,
                                                             .infer = InferBackward,
                                                             .cost = BackwardCost,
                                                             .sample = MakeBackwardSample};

}  // namespace xpud::ops
