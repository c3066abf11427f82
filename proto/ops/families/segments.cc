// Reductions of segments of rows: out[B,D] (in place) <- data[V,D], begins[B], ends[B], index[N], weights[N].
// Row b of out becomes the reduction of rows index[n] of data, each times weights[n], for n from begins[b] to
// ends[b] - 1. Without index, n itself is the row, and N is V. Rows that equal `padding_idx` are skipped; -1
// skips none. A segment without rows leaves its row of out as it is. The row's formula is a reduction formula
// (op_table.h) without `n`, in which k is the row of data.
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out"}};
constexpr Parameter kInputs[] = {{"data"},
                                 {"begins", kIndices},
                                 {"ends", kIndices},
                                 {"index", kIndices | kOptional},
                                 {"weights", kOptional}};
constexpr Attribute kPadding[] = {{"padding_idx", AttributeType::kInteger}};

int64_t PositionsOf(const Call& call) {
  return call.inputs[3].present ? call.inputs[3].sizes[0] : call.inputs[0].sizes[0];
}

absl::Status Check(const Call& call) {
  const Operand &out = call.outputs[0], &data = call.inputs[0], &begins = call.inputs[1],
                &ends = call.inputs[2], &index = call.inputs[3], &weights = call.inputs[4];
  RETURN_IF_ERROR(NeedRank(data, "data", 2));
  RETURN_IF_ERROR(NeedRank(begins, "begins", 1));
  RETURN_IF_ERROR(NeedSizes(out, "output", {begins.sizes[0], data.sizes[1]}));
  const bool positions = call.row->types == TypeRule::kIndex;
  RETURN_IF_ERROR(NeedSameType(out, "output", positions ? DType::kInt64 : data.dtype));
  RETURN_IF_ERROR(NeedSizes(ends, "ends", {begins.sizes[0]}));
  if (index.present) RETURN_IF_ERROR(NeedRank(index, "index", 1));
  if (!weights.present) return absl::OkStatus();
  RETURN_IF_ERROR(NeedSameType(weights, "weights", data.dtype));
  return NeedSizes(weights, "weights", {PositionsOf(call)});
}

// Segments may overlap, so each may have all positions.
double Cost(const Call& call) {
  const Operand& out = call.outputs[0];
  return static_cast<double>(out.sizes[0]) * static_cast<double>(out.sizes[1]) *
         static_cast<double>(PositionsOf(call));
}

}  // namespace

constinit const FamilyDescriptor kSegmentsFamily = {
    .name = "segments",
    .title = "reductions of segments",
    .outputs = kOut,
    .inputs = kInputs,
    .attributes = kPadding,
    .reads_outputs = true,
    .check = Check,
    .cost = Cost,
    .index_limit = [](const Call& call) { return PositionsOf(call) + 1; },
    .sample = [](const Row& row, DType type) -> Sample {
      return {{{{2, 3}, row.types == TypeRule::kIndex ? DType::kInt64 : type}},
              {{{4, 3}, type}, {{2}, DType::kInt64}, {{2}, DType::kInt64}, {{4}, DType::kInt64}, {{4}, type}},
              {Number::Integer(-1)}};
    }};

}  // namespace xpud::ops
