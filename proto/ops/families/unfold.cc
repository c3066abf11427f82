#include "proto/ops/families/unfold.h"

#include <algorithm>

#include "proto/base/status_macros.h"
#include "proto/ops/families/windows.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  ASSIGN_OR_RETURN(const UnfoldSpec spec, UnfoldOf(call));
  const Operand& self = *spec.self;
  Operand& out = *Outputs<UnfoldCall>(outputs).out;
  if (call.row->family == Family::kFold) {
    SetOutput(out, self.dtype, {spec.batch, spec.channels, spec.windows[0].in, spec.windows[1].in});
  } else {
    SetOutput(out, self.dtype, {spec.batch, spec.columns, spec.positions});
  }
  if (self.rank % 2 == (call.row->family == Family::kFold ? 1 : 0)) return absl::OkStatus();
  std::copy(out.sizes.begin() + 1, out.sizes.end(), out.sizes.begin());  // without a batch
  --out.rank;
  return absl::OkStatus();
}

absl::Status Check(const Call& call) {
  ASSIGN_OR_RETURN(const UnfoldSpec spec, UnfoldOf(call));
  Operand inferred;
  RETURN_IF_ERROR(Infer(call, {&inferred, 1}));
  const Operand& out = *spec.out;
  RETURN_IF_ERROR(NeedSameType(out, "output", inferred.dtype));
  return NeedSameSizes(out, inferred, "output");
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

struct SampleNumbers {
  const NumberList size = {3, 4}, twos = {2, 2}, ones = {1, 1}, zeros = {0, 0};
};

Sample MakeUnfoldSample(const Row&, DType type) {
  const SampleNumbers n;
  return SampleOf(UnfoldCall<Sample::Tensor>{.out = {{2, 4, 6}, type},
                                             .self = {{2, 1, 3, 4}, type},
                                             .kernel_size = n.twos,
                                             .dilation = n.ones,
                                             .padding = n.zeros,
                                             .stride = n.ones});
}

Sample MakeFoldSample(const Row&, DType type) {
  const SampleNumbers n;
  return SampleOf(FoldCall<Sample::Tensor>{.out = {{2, 1, 3, 4}, type},
                                           .self = {{2, 4, 6}, type},
                                           .output_size = n.size,
                                           .kernel_size = n.twos,
                                           .dilation = n.ones,
                                           .padding = n.zeros,
                                           .stride = n.ones});
}

}  // namespace

constinit const FamilyDescriptor kUnfoldFamily =
    Described<UnfoldCall>({.name = "unfold",
                           .title = "windows of images as columns",
                           .check = Check,
                           .infer = Infer,
                           .cost = Cost,
                           .sample = MakeUnfoldSample});
constinit const FamilyDescriptor kFoldFamily = Described<FoldCall>({.name = "fold",
                                                                    .title = "sums of columns as images",
                                                                    .check = Check,
                                                                    .infer = Infer,
                                                                    .cost = Cost,
                                                                    .sample = MakeFoldSample});

}  // namespace xpud::ops
