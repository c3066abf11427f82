#include "proto/ops/families/scatter.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status Check(const Call& call) {
  const auto scatter = Read<ScatterCall>(call);
  const Operand &out = *scatter.out, &index = *scatter.index;
  if (out.rank == 0) return Invalid("scatter needs an output with a dimension");
  ASSIGN_OR_RETURN(const int dim, DimensionOf(scatter.dim, out));
  RETURN_IF_ERROR(NeedRank(index, "index", out.rank));
  if (!scatter.source->immediate) RETURN_IF_ERROR(NeedSameSizes(*scatter.source, index, "source"));
  for (int d = 0; d < out.rank; ++d) {
    if (d != dim && index.sizes[d] > out.sizes[d]) {
      return absl::InvalidArgumentError(
          absl::StrCat("index ", Describe(index), " does not fit output ", Describe(out)));
    }
  }
  return absl::OkStatus();
}

consteval FamilyDescriptor DescribedAs(std::string_view name, std::string_view title) {
  return Described<ScatterCall>(
      {.name = name,
       .title = title,
       .typed_input = 1,
       .takes_immediates = true,
       .check = Check,
       .index_limit =
           [](const Call& call) {
             const auto scatter = Read<ScatterCall>(call);
             return scatter.out->sizes[scatter.dim];
           },
       .sample =
           [](const Row&, DType type) {
             return SampleOf(ScatterCall<Sample::Tensor>{
                 .out = {{4, 3}, type}, .index = {{2, 3}, DType::kInt64}, .source = {{2, 3}, type}});
           }});
}

}  // namespace

constinit const FamilyDescriptor kScatterFamily = DescribedAs("scatter", "scatter along a dimension");
constinit const FamilyDescriptor kScatterAnyOrderFamily =
    DescribedAs("scatter_any_order", "scatter along a dimension, in any order");

}  // namespace xpud::ops
