// out[index[n], :] += source[n, :], in the order of n: out[V,D] (in place) <- index[N], source[N,D]. Rows
// whose index is `padding_idx` are skipped; -1 skips none.
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out"}};
constexpr Parameter kIndexAndSource[] = {{"index", kIndices}, {"source"}};
constexpr Attribute kPadding[] = {{"padding_idx", AttributeType::kInteger}};

absl::Status Check(const Call& call) {
  const Operand &out = call.outputs[0], &index = call.inputs[0], &source = call.inputs[1];
  RETURN_IF_ERROR(NeedRank(out, "output", 2));
  RETURN_IF_ERROR(NeedRank(index, "index", 1));
  RETURN_IF_ERROR(NeedSameType(source, "source", out.dtype));
  return NeedSizes(source, "source", {index.sizes[0], out.sizes[1]});
}

}  // namespace

constinit const FamilyDescriptor kScatterAddFamily = {
    .name = "scatter_add",
    .title = "scatter",
    .outputs = kOut,
    .inputs = kIndexAndSource,
    .attributes = kPadding,
    .typed_input = 1,
    .reads_outputs = true,
    .check = Check,
    .index_limit = [](const Call& call) { return call.outputs[0].sizes[0]; },
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{4, 3}, type}}, {{{2}, DType::kInt64}, {{2, 3}, type}}, {Number::Integer(-1)}};
    }};

}  // namespace xpud::ops
