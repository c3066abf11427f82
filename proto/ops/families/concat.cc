#include "proto/ops/families/concat.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::StatusOr<int> DimensionOfInputs(const Call& call) {
  if (call.inputs[0].rank == 0) return Invalid("tensors without dimensions cannot be concatenated");
  return DimensionOf(Read<ConcatCall>(call).dim, call.inputs[0]);
}

absl::Status NeedSizesBeside(const Operand& tensor, const Operand& like, int dim) {
  bool fits = tensor.rank == like.rank;
  for (int d = 0; fits && d < like.rank; ++d) fits = d == dim || tensor.sizes[d] == like.sizes[d];
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Describe(tensor), " does not fit beside ", Describe(like),
                                                 ": all sizes but that of dimension ", dim,
                                                 " must be the same"));
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  ASSIGN_OR_RETURN(const int dim, DimensionOfInputs(call));
  Operand& out = *Outputs<ConcatCall>(outputs).out;
  SetOutputLike(out, call.inputs[0]);
  for (const Operand& tensor : call.inputs.subspan(1)) {
    RETURN_IF_ERROR(NeedSizesBeside(tensor, call.inputs[0], dim));
    out.sizes[dim] += tensor.sizes[dim];
  }
  return absl::OkStatus();
}

absl::Status Check(const Call& call) {
  const Operand& out = *Read<ConcatCall>(call).out;
  ASSIGN_OR_RETURN(const int dim, DimensionOfInputs(call));
  int64_t size = 0;
  for (const Operand& tensor : call.inputs) {
    RETURN_IF_ERROR(NeedSizesBeside(tensor, out, dim));
    if (__builtin_add_overflow(size, tensor.sizes[dim], &size)) return Invalid("its size overflows");
  }
  if (size == out.sizes[dim]) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the tensors have ", size, " elements along dimension ", dim,
                                                 ", the output ", Describe(out)));
}

}  // namespace

constinit const FamilyDescriptor kConcatFamily = Described<ConcatCall>(
    {.name = "concat",
     .title = "concatenation",
     .check = Check,
     .infer = Infer,
     .sample = [](const Row&, DType type) -> Sample {
       return {{{{5, 3}, type}}, {{{2, 3}, type}, {{3, 3}, type}}, {Number::Integer(0)}, {2}};
     }});

}  // namespace xpud::ops
