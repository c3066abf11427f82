// Reversal: out[S] <- self[S], whose elements are in reverse order along dimensions `dims`.
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kSelf[] = {{"self"}}, kOut[] = {{"out"}};
constexpr Attribute kDims[] = {{"dims", AttributeType::kIntegers}};

absl::Status Check(const Call& call) {
  const Operand& self = call.inputs[0];
  RETURN_IF_ERROR(NeedTensor(self, "input"));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "output", self.dtype));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], self, "output"));
  unsigned seen = 0;
  for (const Number& number : call.attributes.subspan(1)) {
    const int64_t dim = number.AsInteger();
    if (dim < 0 || dim >= self.rank || (seen >> dim & 1) != 0)
      return absl::InvalidArgumentError(absl::StrCat("dimension ", dim, " of ", Describe(self)));
    seen |= 1u << dim;
  }
  return absl::OkStatus();
}

Sample MakeSample(const Row&, DType type) {
  return {{{{2, 3}, type}}, {{{2, 3}, type}}, {Number::Integer(1), Number::Integer(0)}};
}

}  // namespace

constinit const FamilyDescriptor kFlipFamily = {.name = "flip",
                                                .title = "reversal",
                                                .outputs = kOut,
                                                .inputs = kSelf,
                                                .attributes = kDims,
                                                .check = Check,
                                                .infer =
                                                    [](const Call& call, std::span<Operand> outputs) {
                                                      SetOutputLike(outputs[0], call.inputs[0]);
                                                      return absl::OkStatus();
                                                    },
                                                .sample = MakeSample};

}  // namespace xpud::ops
