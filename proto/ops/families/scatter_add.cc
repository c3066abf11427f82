#include "proto/ops/families/scatter_add.h"

#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status Check(const Call& call) {
  const auto scatter = Read<ScatterAddCall>(call);
  RETURN_IF_ERROR(NeedRank(*scatter.out, "output", 2));
  RETURN_IF_ERROR(NeedRank(*scatter.index, "index", 1));
  RETURN_IF_ERROR(NeedSameType(*scatter.source, "source", scatter.out->dtype));
  return NeedSizes(*scatter.source, "source", {scatter.index->sizes[0], scatter.out->sizes[1]});
}

Sample MakeSample(const Row&, DType type) {
  return SampleOf(ScatterAddCall<Sample::Tensor>{
      .out = {{4, 3}, type}, .index = {{2}, DType::kInt64}, .source = {{2, 3}, type}, .padding_idx = -1});
}

}  // namespace

constinit const FamilyDescriptor kScatterAddFamily = Described<ScatterAddCall>(
    {.name = "scatter_add",
     .title = "scatter",
     .typed_input = 1,
     .check = Check,
     .index_limit = [](const Call& call) { return Read<ScatterAddCall>(call).out->sizes[0]; },
     .sample = MakeSample});

}  // namespace xpud::ops
