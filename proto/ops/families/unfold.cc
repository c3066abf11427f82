// Windows of images as columns, and back. Unfold: out[N, C * kernel, windows] <- self[N, C, H, W]; elements
// of the padding are 0. Fold: out[N, C, H, W] <- self[N, C * kernel, windows]: the sums of the windows'
// elements at each position; bools are combined with or. N may be missing.
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"
#include "proto/ops/windows.h"

namespace xpud::ops {
namespace {

constexpr Parameter kSelf[] = {{"self"}}, kOut[] = {{"out"}};
constexpr Attribute kAttributes[] = {{"output_size", AttributeType::kIntegers},
                                     {"kernel_size", AttributeType::kIntegers},
                                     {"dilation", AttributeType::kIntegers},
                                     {"padding", AttributeType::kIntegers},
                                     {"stride", AttributeType::kIntegers}};

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const Operand& self = call.inputs[0];
  ASSIGN_OR_RETURN(const UnfoldSpec spec, UnfoldOf(call));
  if (call.row->family == Family::kFold) {
    SetOutput(outputs[0], self.dtype, {spec.batch, spec.channels, spec.windows[0].in, spec.windows[1].in});
  } else {
    SetOutput(outputs[0], self.dtype, {spec.batch, spec.columns, spec.positions});
  }
  if (self.rank % 2 == (call.row->family == Family::kFold ? 1 : 0)) return absl::OkStatus();
  auto& sizes = outputs[0].sizes;  // without a batch
  std::copy(sizes.begin() + 1, sizes.end(), sizes.begin());
  --outputs[0].rank;
  return absl::OkStatus();
}

absl::Status Check(const Call& call) {
  Operand inferred;
  RETURN_IF_ERROR(Infer(call, {&inferred, 1}));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "output", inferred.dtype));
  return NeedSameSizes(call.outputs[0], inferred, "output");
}

// Elements of windows, and of an image that are read for each element of a kernel.
double Cost(const Call& call) {
  const absl::StatusOr<UnfoldSpec> spec = UnfoldOf(call);
  if (!spec.ok()) return 0;
  const Window &h = spec->windows[0], &w = spec->windows[1];
  const double kernels = static_cast<double>(spec->batch) * static_cast<double>(spec->columns);
  const bool folds = call.row->family == Family::kFold;
  return kernels * (folds ? static_cast<double>(h.in) * static_cast<double>(w.in)
                          : static_cast<double>(spec->positions));
}

Sample MakeSample(const Row& row, DType type) {
  const bool folds = row.family == Family::kFold;
  Sample sample = {{{{2, 4, 6}, type}}, {{{2, 1, 3, 4}, type}}};
  if (folds) std::swap(sample.outputs, sample.inputs);
  const std::vector<int64_t> all = {3, 4, 2, 2, 1, 1, 0, 0, 1, 1};
  for (size_t i = folds ? 0 : 2; i < all.size(); i += 2) {
    for (const int64_t value : {int64_t{2}, all[i], all[i + 1]})
      sample.attributes.push_back(Number::Integer(value));
  }
  return sample;
}

}  // namespace

constinit const FamilyDescriptor kUnfoldFamily = {.name = "unfold",
                                                  .title = "windows of images as columns",
                                                  .outputs = kOut,
                                                  .inputs = kSelf,
                                                  .attributes = std::span(kAttributes).subspan(1),
                                                  .check = Check,
                                                  .infer = Infer,
                                                  .cost = Cost,
                                                  .sample = MakeSample};
constinit const FamilyDescriptor kFoldFamily = {.name = "fold",
                                                .title = "sums of columns as images",
                                                .outputs = kOut,
                                                .inputs = kSelf,
                                                .attributes = kAttributes,
                                                .check = Check,
                                                .infer = Infer,
                                                .cost = Cost,
                                                .sample = MakeSample};

}  // namespace xpud::ops
