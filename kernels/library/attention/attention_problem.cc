#include "kernels/library/attention/attention_problem.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/attention.h"

namespace xpud::kernels::attention {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the strides of the last `axes` axes, outermost first. Missing axes, and axes of size 1, have stride
// 0.
HeadTensor Describe(const Operand& operand, int axes) {
  HeadTensor t;
  if (!operand.present) return t;
  t.data = static_cast<std::byte*>(operand.data);
  int64_t* const strides[] = {&t.batch, &t.head, &t.row, &t.column};
  for (int axis = 0; axis < axes; ++axis) {
    const int d = operand.rank - axes + axis;
    if (d >= 0 && operand.sizes[d] != 1) *strides[axis] = operand.strides[d];
  }
  return t;
}

bool IsOptionalMask(const Operand& mask, ops::DType type) {
  return !mask.present || mask.dtype == type || mask.dtype == ops::DType::kBool;
}

absl::Status CheckTypes(const Operand& query, std::initializer_list<ops::Given> others, const Operand& mask) {
  bool same = ops::IsFloating(query.dtype);
  for (const Operand* other : others) same = same && other->dtype == query.dtype;
  if (same && IsOptionalMask(mask, query.dtype)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "attention of ", std::string(ops::Info(query.dtype).name),
      " queries: query, key, value and output must have one floating type, a mask that or bool"));
}

simd::AttentionDropout ReadDropout(const ops::TrainingAttributes& attributes, int64_t keys) {
  simd::AttentionDropout dropout;
  const double p = attributes.dropout;
  // rand >= p for a number of 24 bits.
  dropout.threshold = static_cast<uint32_t>(std::ceil(std::clamp(p, 0.0, 1.0) * 0x1p24));
  dropout.factor = p < 1 ? 1 / (1 - p) : 0;
  dropout.seed = static_cast<uint64_t>(attributes.seed);
  dropout.offset = static_cast<uint64_t>(attributes.offset);
  dropout.row = static_cast<uint64_t>(keys);
  return dropout;
}

// Reads what the calls of all three families have. Returns Unimplemented for types that do not go together.
template <typename Attention>
absl::Status ReadOperands(const Attention& a, AttentionProblem& p) {
  RETURN_IF_ERROR(CheckTypes(*a.query, {a.key, a.value, a.out}, *a.mask));
  p.batch = a.query->sizes[0];
  p.heads = a.query->sizes[1];
  p.queries = a.query->sizes[2];
  p.depth = a.query->sizes[3];
  p.keys = a.key->sizes[2];
  p.value_depth = a.value->sizes[3];
  p.heads_per_key_head = std::max<int64_t>(1, p.heads / std::max<int64_t>(1, a.key->sizes[1]));
  p.q = Describe(*a.query, 4);
  p.k = Describe(*a.key, 4);
  p.v = Describe(*a.value, 4);
  p.out = Describe(*a.out, 4);
  p.logsumexp = Describe(*a.logsumexp, 3);
  p.wide_logsumexp = a.logsumexp->present && a.logsumexp->dtype == ops::DType::kFloat64;
  p.mask = Describe(*a.mask, 4);
  if (a.mask->present) p.mask_dtype = a.mask->dtype;
  // A column axis of size 1 may have any stride. With 1, the tensor is read in place.
  if (p.depth == 1) p.q.column = p.k.column = 1;
  if (p.value_depth == 1) p.v.column = p.out.column = 1;
  p.dtype = a.query->dtype;
  return absl::OkStatus();
}

void ReadAttributes(const ops::TrainingAttributes& attributes, AttentionProblem& p) {
  p.scale = attributes.scale;
  p.causal = attributes.is_causal;
  p.dropout = ReadDropout(attributes, p.keys);
}

std::byte* At(const HeadTensor& t, int64_t batch, int64_t head, int64_t row, int64_t size) {
  return t.data == nullptr ? nullptr : t.data + (batch * t.batch + head * t.head + row * t.row) * size;
}

}  // namespace

absl::StatusOr<AttentionProblem> ReadAttention(const OpCall& call) {
  AttentionProblem p;
  if (call.row->family == ops::Family::kTrainingAttention) {
    const auto training = ops::Read<ops::TrainingAttentionCall>(call);
    RETURN_IF_ERROR(ReadOperands(training, p));
    ReadAttributes(training.attributes, p);
    return p;
  }
  const auto attention = ops::Read<ops::AttentionCall>(call);
  RETURN_IF_ERROR(ReadOperands(attention, p));
  p.scale = attention.scale;
  p.causal = attention.is_causal;
  return p;
}

absl::StatusOr<AttentionGradientProblem> ReadAttentionGradient(const OpCall& call) {
  const auto backward = ops::Read<ops::AttentionBackwardCall>(call);
  AttentionGradientProblem p;
  RETURN_IF_ERROR(ReadOperands(backward, p));
  RETURN_IF_ERROR(
      CheckTypes(*backward.query,
                 {backward.gradient, backward.query_gradient, backward.key_gradient, backward.value_gradient},
                 *backward.mask));
  ReadAttributes(backward.attributes, p);
  p.gradient = Describe(*backward.gradient, 4);
  p.dq = Describe(*backward.query_gradient, 4);
  p.dk = Describe(*backward.key_gradient, 4);
  p.dv = Describe(*backward.value_gradient, 4);
  if (p.depth == 1) p.dq.column = p.dk.column = 1;
  if (p.value_depth == 1) p.gradient.column = p.dv.column = 1;
  return p;
}

int64_t AttentionProblem::QueriesPerTile() const {
  const int64_t tiles = std::max<int64_t>(1, CeilDivide(queries, simd::AttentionTile::kMaxQueries));
  return std::max<int64_t>(1, CeilDivide(CeilDivide(queries, tiles), 16)) * 16;
}

int64_t AttentionProblem::TilesOfHead() const { return CeilDivide(queries, QueriesPerTile()); }

double AttentionProblem::Nanoseconds(bool in_pairs) const {
  const double scores = 1.0 * batch * heads * queries * keys, rate = in_pairs ? 800 : 150;
  const double bytes = 1.0 * batch * heads * keys * (depth + value_depth) * ops::SizeOf(dtype);
  return std::max(scores * (2.0 * (depth + value_depth) / rate + (in_pairs ? 0.5 : 0.1)), bytes / 25);
}

simd::AttentionTile AttentionProblem::TileAt(int64_t index) const {
  const int64_t per_tile = QueriesPerTile(), per_head = TilesOfHead();
  const int64_t first = index % per_head * per_tile, h = index / per_head % heads,
                b = index / per_head / heads;
  const int64_t element = ops::SizeOf(dtype);
  simd::AttentionTile tile;
  tile.dtype = dtype;
  tile.mask_dtype = mask_dtype;
  tile.queries = std::min(per_tile, queries - first);
  tile.keys = keys;
  tile.depth = depth;
  tile.value_depth = value_depth;
  tile.q = At(q, b, h, first, element);
  tile.k = At(k, b, h / heads_per_key_head, 0, element);
  tile.v = At(v, b, h / heads_per_key_head, 0, element);
  tile.mask = At(mask, b, h, first, ops::SizeOf(mask_dtype));
  tile.out = At(out, b, h, first, element);
  tile.logsumexp = At(logsumexp, b, h, first, wide_logsumexp ? sizeof(double) : sizeof(float));
  tile.wide_logsumexp = wide_logsumexp;
  tile.q_row = q.row;
  tile.q_column = q.column;
  tile.k_row = k.row;
  tile.k_column = k.column;
  tile.v_row = v.row;
  tile.v_column = v.column;
  tile.mask_row = mask.row;
  tile.mask_column = mask.column;
  tile.out_row = out.row;
  tile.out_column = out.column;
  tile.logsumexp_stride = logsumexp.row;
  tile.scale = scale;
  tile.causal = causal;
  tile.first_query = first;
  tile.dropout = dropout;
  tile.dropout.element = static_cast<uint64_t>((b * heads + h) * queries + first) * dropout.row;
  return tile;
}

namespace {

constexpr int64_t kManyTasks = 32;     // from which on keys are not cut
constexpr int64_t kMaxParts = 8;       // each needs memory for dq
constexpr int64_t kMinPartKeys = 512;  // with fewer, adding the parts of dq would take long
constexpr int64_t kKeyMultiple = 128;  // the keys that the vector code takes at a time

}  // namespace

int64_t AttentionGradientProblem::KeysPerPart() const {
  const int64_t heads_in_all = std::max<int64_t>(1, batch * KeyHeads());
  const int64_t wanted = std::min(kMaxParts, CeilDivide(kManyTasks, heads_in_all));
  const int64_t parts = std::max<int64_t>(1, std::min(wanted, keys / kMinPartKeys));
  return std::max<int64_t>(1, CeilDivide(CeilDivide(keys, parts), kKeyMultiple)) * kKeyMultiple;
}

int64_t AttentionGradientProblem::Parts() const { return CeilDivide(keys, KeysPerPart()); }

double AttentionGradientProblem::GradientNanoseconds(bool in_pairs) const {
  const double scores = 1.0 * batch * heads * queries * keys, rate = in_pairs ? 800 : 150;
  return scores * (2.0 * (3 * depth + 2 * value_depth) / rate + (in_pairs ? 1 : 0.2));
}

size_t AttentionGradientProblem::WorkspaceBytes() const {
  const int64_t sum = dtype == ops::DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<size_t>(Parts() * (GradientElements() + DeltaElements()) * sum);
}

simd::AttentionGradientTile AttentionGradientProblem::TaskAt(int64_t index, std::byte* workspace) const {
  const int64_t parts = Parts(), part = index % parts, kh = index / parts % KeyHeads(),
                b = index / parts / KeyHeads(), h = kh * heads_per_key_head, first = part * KeysPerPart();
  const int64_t element = ops::SizeOf(dtype), sum = dtype == ops::DType::kFloat64 ? 8 : 4;
  const auto of_heads = [&](const HeadTensor& t, int64_t size) -> simd::HeadMatrix {
    return {At(t, b, h, 0, size), t.head, t.row, t.column};
  };
  const auto of_keys = [&](const HeadTensor& t) -> simd::HeadMatrix {
    return {At(t, b, kh, first, element), 0, t.row, t.column};
  };
  simd::AttentionGradientTile tile;
  tile.dtype = dtype;
  tile.mask_dtype = mask_dtype;
  tile.heads = heads_per_key_head;
  tile.queries = queries;
  tile.queries_per_tile = QueriesPerTile();
  tile.first_key = first;
  tile.keys = std::min(KeysPerPart(), keys - first);
  tile.depth = depth;
  tile.value_depth = value_depth;
  tile.q = of_heads(q, element);
  tile.out = of_heads(out, element);
  tile.gradient = of_heads(gradient, element);
  tile.mask = of_heads(mask, ops::SizeOf(mask_dtype));
  tile.logsumexp = of_heads(logsumexp, sum);
  tile.k = of_keys(k);
  tile.v = of_keys(v);
  tile.dk = of_keys(dk);
  tile.dv = of_keys(dv);
  tile.scale = scale;
  tile.causal = causal;
  tile.dropout = dropout;
  tile.dropout_head = static_cast<uint64_t>(queries) * dropout.row;
  tile.dropout.element = static_cast<uint64_t>(b * heads + h) * tile.dropout_head;
  const int64_t head_queries = (b * heads + h) * TilesOfHead() * QueriesPerTile();
  tile.dq = workspace + (part * GradientElements() + head_queries * depth) * sum;
  tile.delta = workspace + (parts * GradientElements() + part * DeltaElements() + head_queries) * sum;
  return tile;
}

simd::AttentionGradientSum AttentionGradientProblem::SumAt(int64_t tile, std::byte* workspace) const {
  const int64_t per_tile = QueriesPerTile(), tiles = TilesOfHead(), first = tile % tiles * per_tile,
                h = tile / tiles % heads, b = tile / tiles / heads;
  simd::AttentionGradientSum sum;
  sum.dtype = dtype;
  sum.queries = std::min(per_tile, queries - first);
  sum.queries_per_tile = per_tile;
  sum.depth = depth;
  sum.parts = workspace + tile * per_tile * depth * (dtype == ops::DType::kFloat64 ? 8 : 4);
  // Later parts hold only keys to which these queries may not attend.
  sum.count = causal ? std::min(Parts(), CeilDivide(first + sum.queries, KeysPerPart())) : Parts();
  sum.step = GradientElements();
  sum.dq = At(dq, b, h, first, ops::SizeOf(dtype));
  sum.row = dq.row;
  sum.column = dq.column;
  sum.scale = scale;
  return sum;
}

}  // namespace xpud::kernels::attention
