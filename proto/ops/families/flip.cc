#include "proto/ops/families/flip.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status Check(const Call& call) {
  const auto flip = Read<FlipCall>(call);
  RETURN_IF_ERROR(NeedTensor(*flip.self, "input"));
  RETURN_IF_ERROR(NeedSameType(*flip.out, "output", flip.self->dtype));
  RETURN_IF_ERROR(NeedSameSizes(*flip.out, *flip.self, "output"));
  unsigned seen = 0;
  for (size_t i = 0; i < flip.dims.size(); ++i) {
    const int64_t dim = flip.dims[i];
    if (dim < 0 || dim >= flip.self->rank || (seen >> dim & 1) != 0)
      return absl::InvalidArgumentError(absl::StrCat("dimension ", dim, " of ", Describe(*flip.self)));
    seen |= 1u << dim;
  }
  return absl::OkStatus();
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  SetOutputLike(*Outputs<FlipCall>(outputs).out, *Read<FlipCall>(call).self);
  return absl::OkStatus();
}

Sample MakeSample(const Row&, DType type) {
  const Sample::Tensor tensor = {{2, 3}, type};
  return SampleOf(FlipCall<Sample::Tensor>{.out = tensor, .self = tensor, .dims = NumberList({0})});
}

}  // namespace

constinit const FamilyDescriptor kFlipFamily = Described<FlipCall>(
    {.name = "flip", .title = "reversal", .check = Check, .infer = Infer, .sample = MakeSample});

}  // namespace xpud::ops
