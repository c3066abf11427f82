#include "kernels/library/attention/attention_problem.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

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

absl::Status CheckTypes(const OpCall& call) {
  const ops::DType type = call.inputs[0].dtype;
  bool same = ops::IsFloating(type) && call.outputs[0].dtype == type;
  for (int i = 1; i < 3; ++i) same = same && call.inputs[i].dtype == type;
  if (call.inputs.size() > 3 && call.inputs[3].present)
    same = same && (call.inputs[3].dtype == type || call.inputs[3].dtype == ops::DType::kBool);
  if (same) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "attention of ", std::string(ops::Info(type).name),
      " queries: query, key, value and output must have one floating type, a mask that or bool"));
}

}  // namespace

absl::StatusOr<AttentionProblem> ReadAttention(const OpCall& call) {
  RETURN_IF_ERROR(CheckTypes(call));
  const Operand& q = call.inputs[0];
  const Operand& k = call.inputs[1];
  const Operand& v = call.inputs[2];
  AttentionProblem p;
  p.batch = q.sizes[0];
  p.heads = q.sizes[1];
  p.queries = q.sizes[2];
  p.depth = q.sizes[3];
  p.keys = k.sizes[2];
  p.value_depth = v.sizes[3];
  p.heads_per_key_head = std::max<int64_t>(1, p.heads / std::max<int64_t>(1, k.sizes[1]));
  p.q = Describe(q, 4);
  p.k = Describe(k, 4);
  p.v = Describe(v, 4);
  p.out = Describe(call.outputs[0], 4);
  if (call.outputs.size() > 1) p.logsumexp = Describe(call.outputs[1], 3);
  if (call.inputs.size() > 3) {
    p.mask = Describe(call.inputs[3], 4);
    p.mask_dtype = call.inputs[3].dtype;
  }
  // A column axis of size 1 may have any stride. With 1, the tensor is read in place.
  if (p.depth == 1) p.q.column = p.k.column = 1;
  if (p.value_depth == 1) p.v.column = p.out.column = 1;
  p.dtype = q.dtype;
  if (!call.attributes.empty()) p.scale = call.attributes[0].AsReal();
  if (call.attributes.size() > 1) p.causal = call.attributes[1].AsInteger() != 0;
  return p;
}

int64_t AttentionProblem::QueriesPerTile() const {
  const int64_t tiles = CeilDivide(queries, simd::AttentionTile::kMaxQueries);
  return CeilDivide(CeilDivide(queries, tiles), 16) * 16;
}

int64_t AttentionProblem::Tiles() const { return batch * heads * CeilDivide(queries, QueriesPerTile()); }

double AttentionProblem::Nanoseconds() const {
  const double scores = 1.0 * batch * heads * queries * keys;
  return scores * (2.0 * (depth + value_depth) / 150 + 0.1);
}

simd::AttentionTile AttentionProblem::TileAt(int64_t index) const {
  const int64_t per_tile = QueriesPerTile(), per_head = CeilDivide(queries, per_tile);
  const int64_t first = index % per_head * per_tile, h = index / per_head % heads,
                b = index / per_head / heads;
  const int64_t element = ops::SizeOf(dtype);
  const auto at = [](const HeadTensor& t, int64_t batch_index, int64_t head, int64_t row,
                     int64_t size) -> std::byte* {
    return t.data == nullptr ? nullptr
                             : t.data + (batch_index * t.batch + head * t.head + row * t.row) * size;
  };
  simd::AttentionTile tile;
  tile.dtype = dtype;
  tile.mask_dtype = mask_dtype;
  tile.queries = std::min(per_tile, queries - first);
  tile.keys = keys;
  tile.depth = depth;
  tile.value_depth = value_depth;
  tile.q = at(q, b, h, first, element);
  tile.k = at(k, b, h / heads_per_key_head, 0, element);
  tile.v = at(v, b, h / heads_per_key_head, 0, element);
  tile.mask = at(mask, b, h, first, ops::SizeOf(mask_dtype));
  tile.out = at(out, b, h, first, element);
  tile.logsumexp = reinterpret_cast<float*>(at(logsumexp, b, h, first, sizeof(float)));
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
  return tile;
}

}  // namespace xpud::kernels::attention
