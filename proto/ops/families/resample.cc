// Linear maps along the last dimensions of self, one after the other: out[N.., S'..] <- self[N.., S..].
// Average pooling, padding with elements of self, interpolation; and the gradient of each (`transposed`).
// `scale`, `kernel`, `stride` and `padding` have an element for each of these dimensions, at most 3. See
// proto/ops/windows.h.
#include <algorithm>

#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"
#include "proto/ops/windows.h"

namespace xpud::ops {
namespace {

constexpr Parameter kSelf[] = {{"self"}}, kOut[] = {{"out"}};
constexpr Attribute kAttributes[] = {
    {"kind", AttributeType::kInteger},    {"transposed", AttributeType::kBool},
    {"half_pixel", AttributeType::kBool}, {"include_padding", AttributeType::kBool},
    {"scale", AttributeType::kReals},     {"kernel", AttributeType::kIntegers},
    {"stride", AttributeType::kIntegers}, {"padding", AttributeType::kIntegers}};

absl::Status Check(const Call& call) {
  const Operand &out = call.outputs[0], &self = call.inputs[0];
  RETURN_IF_ERROR(NeedSameType(out, "output", self.dtype));
  ASSIGN_OR_RETURN(const ResampleSpec spec, ResampleOf(call));
  if (!CopiesElements(spec)) RETURN_IF_ERROR(NeedType(self, "input", kFloatTypes));
  return absl::OkStatus();
}

// Each dimension is a pass over a tensor that is no larger than input and output allow.
double Cost(const Call& call) {
  const absl::StatusOr<ResampleSpec> spec = ResampleOf(call);
  if (!spec.ok()) return 0;
  double most = 1, tables = 0, taps = 0;
  for (int d = 0; d < call.outputs[0].rank; ++d)
    most *= static_cast<double>(std::max(call.outputs[0].sizes[d], call.inputs[0].sizes[d]));
  for (int d = 0; d < spec->spatial; ++d) {
    const Window& window = spec->windows[static_cast<size_t>(d)];
    const auto each = static_cast<double>(TapsOf(*spec, window));
    taps += each;
    tables +=
        each * 4 * SupportOf(*spec, window) * static_cast<double>(spec->transposed ? window.in : window.out);
  }
  return most * taps + tables;
}

}  // namespace

constinit const FamilyDescriptor kResampleFamily = {
    .name = "resample",
    .title = "resampling",
    .outputs = kOut,
    .inputs = kSelf,
    .attributes = kAttributes,
    .check = Check,
    .cost = Cost,
    .sample = [](const Row&, DType type) -> Sample {
      const auto integer = [](int64_t value) { return Number::Integer(value); };
      return {{{{2, 6}, type}},
              {{{2, 3}, type}},
              {integer(static_cast<int64_t>(ResampleKind::kNearest)), integer(0), integer(0), integer(0),
               integer(1), Number::Real(0.5), integer(1), integer(1), integer(1), integer(1), integer(1),
               integer(0)}};
    }};

}  // namespace xpud::ops
