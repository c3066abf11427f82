#include "proto/ops/families/segments.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

int64_t PositionsOf(const SegmentsCall<Given>& segments) {
  return segments.index->present ? segments.index->sizes[0] : segments.data->sizes[0];
}

absl::Status Check(const Call& call) {
  const auto segments = Read<SegmentsCall>(call);
  const Operand &out = *segments.out, &data = *segments.data, &begins = *segments.begins;
  RETURN_IF_ERROR(NeedRank(data, "data", 2));
  RETURN_IF_ERROR(NeedRank(begins, "begins", 1));
  RETURN_IF_ERROR(NeedSizes(out, "output", {begins.sizes[0], data.sizes[1]}));
  const bool positions = call.row->types == TypeRule::kIndex;
  RETURN_IF_ERROR(NeedSameType(out, "output", positions ? DType::kInt64 : data.dtype));
  RETURN_IF_ERROR(NeedSizes(*segments.ends, "ends", {begins.sizes[0]}));
  if (segments.index->present) RETURN_IF_ERROR(NeedRank(*segments.index, "index", 1));
  if (!segments.weights->present) return absl::OkStatus();
  RETURN_IF_ERROR(NeedSameType(*segments.weights, "weights", data.dtype));
  return NeedSizes(*segments.weights, "weights", {PositionsOf(segments)});
}

// Segments may overlap, so each may have all positions.
double Cost(const Call& call) {
  const auto segments = Read<SegmentsCall>(call);
  return static_cast<double>(segments.out->sizes[0]) * static_cast<double>(segments.out->sizes[1]) *
         static_cast<double>(PositionsOf(segments));
}

Sample MakeSample(const Row& row, DType type) {
  return SampleOf(
      SegmentsCall<Sample::Tensor>{.out = {{2, 3}, row.types == TypeRule::kIndex ? DType::kInt64 : type},
                                   .data = {{4, 3}, type},
                                   .begins = {{2}, DType::kInt64},
                                   .ends = {{2}, DType::kInt64},
                                   .index = {{4}, DType::kInt64},
                                   .weights = {{4}, type},
                                   .padding_idx = -1});
}

}  // namespace

constinit const FamilyDescriptor kSegmentsFamily = Described<SegmentsCall>(
    {.name = "segments",
     .title = "reductions of segments",
     .check = Check,
     .cost = Cost,
     .index_limit = [](const Call& call) { return PositionsOf(Read<SegmentsCall>(call)) + 1; },
     .sample = MakeSample});

}  // namespace xpud::ops
