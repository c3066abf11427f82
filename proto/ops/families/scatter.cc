// Scatter along `dim`: element index[n] of a line of out becomes the row's formula of it and of source[n], in
// the order of n: out[S] (in place) <- index[I], source[I] of any type, or a number. A line is one along dim.
// I has the rank of S, and except in dim no size exceeds that of S.
//
// In any order: a device may take the entries of the index in another order each time, as it is fastest.
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out"}};
constexpr Parameter kIndexAndSource[] = {{"index", kIndices}, {"source"}};
constexpr Attribute kDim[] = {{"dim", AttributeType::kDimension}};

absl::Status Check(const Call& call) {
  const Operand &out = call.outputs[0], &index = call.inputs[0], &source = call.inputs[1];
  if (out.rank == 0) return Invalid("scatter needs an output with a dimension");
  ASSIGN_OR_RETURN(const int dim, DimensionOf(call, out));
  RETURN_IF_ERROR(NeedRank(index, "index", out.rank));
  if (!source.immediate) RETURN_IF_ERROR(NeedSameSizes(source, index, "source"));
  for (int d = 0; d < out.rank; ++d) {
    if (d != dim && index.sizes[d] > out.sizes[d]) {
      return absl::InvalidArgumentError(
          absl::StrCat("index ", Describe(index), " does not fit output ", Describe(out)));
    }
  }
  return absl::OkStatus();
}

constexpr FamilyDescriptor Described(std::string_view name, std::string_view title) {
  return {
      .name = name,
      .title = title,
      .outputs = kOut,
      .inputs = kIndexAndSource,
      .attributes = kDim,
      .typed_input = 1,
      .takes_immediates = true,
      .reads_outputs = true,
      .check = Check,
      .index_limit = [](const Call& call) { return call.outputs[0].sizes[call.attributes[0].AsInteger()]; },
      .sample = [](const Row&, DType type) -> Sample {
        return {{{{4, 3}, type}}, {{{2, 3}, DType::kInt64}, {{2, 3}, type}}, {Number::Integer(0)}};
      }};
}

}  // namespace

constinit const FamilyDescriptor kScatterFamily = Described("scatter", "scatter along a dimension");
constinit const FamilyDescriptor kScatterAnyOrderFamily =
    Described("scatter_any_order", "scatter along a dimension, in any order");

}  // namespace xpud::ops
