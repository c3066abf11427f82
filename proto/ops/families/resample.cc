#include "proto/ops/families/resample.h"

#include <algorithm>
#include <array>

#include "proto/base/status_macros.h"
#include "proto/ops/families/windows.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status Check(const Call& call) {
  const auto resample = Read<ResampleCall>(call);
  RETURN_IF_ERROR(NeedSameType(*resample.out, "output", resample.self->dtype));
  ASSIGN_OR_RETURN(const ResampleSpec spec, ResampleOf(call));
  if (!CopiesElements(spec)) RETURN_IF_ERROR(NeedType(*resample.self, "input", kFloatTypes));
  return absl::OkStatus();
}

// Each dimension is a pass over a tensor that is no larger than input and output allow.
double Cost(const Call& call) {
  const absl::StatusOr<ResampleSpec> spec = ResampleOf(call);
  if (!spec.ok()) return 0;
  double most = 1, tables = 0, taps = 0;
  const auto resample = Read<ResampleCall>(call);
  for (int d = 0; d < resample.out->rank; ++d)
    most *= static_cast<double>(std::max(resample.out->sizes[d], resample.self->sizes[d]));
  for (int d = 0; d < spec->spatial; ++d) {
    const Window& window = spec->windows[static_cast<size_t>(d)];
    const auto each = static_cast<double>(TapsOf(*spec, window));
    taps += each;
    tables +=
        each * 4 * SupportOf(*spec, window) * static_cast<double>(spec->transposed ? window.in : window.out);
  }
  return most * taps + tables;
}

Sample MakeSample(const Row&, DType type) {
  const NumberList scale = NumberList(std::array{0.5}), ones = {1}, zeros = {0};
  return SampleOf(ResampleCall<Sample::Tensor>{.out = {{2, 6}, type},
                                               .self = {{2, 3}, type},
                                               .kind = static_cast<int64_t>(ResampleKind::kNearest),
                                               .scale = scale,
                                               .kernel = ones,
                                               .stride = ones,
                                               .padding = zeros});
}

}  // namespace

constinit const FamilyDescriptor kResampleFamily = Described<ResampleCall>(
    {.name = "resample", .title = "resampling", .check = Check, .cost = Cost, .sample = MakeSample});

}  // namespace xpud::ops
