#include "proto/ops/families/grid_sample.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status CheckShapes(const GridSampleAttributes& attributes, const Operand& input, const Operand& grid,
                         const Operand& out) {
  RETURN_IF_ERROR(NeedTensor(input, "input"));
  const int rank = input.rank, spatial = rank - 2;
  if (rank != 4 && rank != 5) return Invalid("grid_sample needs 4 or 5 dimensions");
  RETURN_IF_ERROR(NeedRank(grid, "grid", rank));
  RETURN_IF_ERROR(NeedRank(out, "output", rank));
  bool fits = grid.sizes[rank - 1] == spatial && grid.sizes[0] == input.sizes[0] &&
              out.sizes[0] == input.sizes[0] && out.sizes[1] == input.sizes[1];
  constexpr int64_t kMost = int64_t{1} << 24;  // f32 positions
  for (int d = 0; d < spatial; ++d) {
    fits &= out.sizes[d + 2] == grid.sizes[d + 1];
    fits &= input.sizes[d + 2] >= 1 && input.sizes[d + 2] <= kMost;
  }
  if (!fits)
    return absl::InvalidArgumentError(absl::StrCat("output ", Describe(out), " does not fit input ",
                                                   Describe(input), " and grid ", Describe(grid)));
  RETURN_IF_ERROR(NeedSameType(grid, "grid", input.dtype));
  RETURN_IF_ERROR(NeedSameType(out, "output", input.dtype));
  const int64_t mode = attributes.interpolation_mode, padding = attributes.padding_mode;
  if (mode < 0 || mode > (spatial == 2 ? 2 : 1) || padding < 0 || padding > 2)
    return absl::InvalidArgumentError(absl::StrCat("interpolation ", mode, " with padding ", padding));
  return absl::OkStatus();
}

absl::Status CheckForward(const Call& call) {
  const auto sample = Read<GridSampleCall>(call);
  return CheckShapes(sample.attributes, *sample.input, *sample.grid, *sample.out);
}

absl::Status CheckBackward(const Call& call) {
  const auto backward = Read<GridSampleBackwardCall>(call);
  const Operand &input = *backward.input, &grid = *backward.grid;
  RETURN_IF_ERROR(CheckShapes(backward.attributes, input, grid, *backward.grad_output));
  RETURN_IF_ERROR(NeedSameSizes(*backward.grad_input, input, "gradient of input"));
  RETURN_IF_ERROR(NeedSameSizes(*backward.grad_grid, grid, "gradient of grid"));
  RETURN_IF_ERROR(NeedSameType(*backward.grad_input, "gradient of input", input.dtype));
  return NeedSameType(*backward.grad_grid, "gradient of grid", input.dtype);
}

double CostOfSamples(const Operand& out, const Operand& grid) {
  return 64 * (static_cast<double>(out.numel()) + static_cast<double>(grid.numel()));
}

double Cost(const Call& call) {
  const auto sample = Read<GridSampleCall>(call);
  return CostOfSamples(*sample.out, *sample.grid);
}

double CostOfBackward(const Call& call) {
  const auto backward = Read<GridSampleBackwardCall>(call);
  return 3 * CostOfSamples(*backward.grad_output, *backward.grid);
}

Sample MakeSample(const Row&, DType type) {
  const Sample::Tensor plane = {{1, 1, 2, 2}, type}, grid = {{1, 2, 2, 2}, type};
  return SampleOf(GridSampleCall<Sample::Tensor>{.out = plane, .input = plane, .grid = grid});
}

Sample MakeBackwardSample(const Row&, DType type) {
  const Sample::Tensor plane = {{1, 1, 2, 2}, type}, grid = {{1, 2, 2, 2}, type};
  return SampleOf(GridSampleBackwardCall<Sample::Tensor>{
      .grad_input = plane, .grad_grid = grid, .grad_output = plane, .input = plane, .grid = grid});
}

}  // namespace

constinit const FamilyDescriptor kGridSampleFamily =
    Described<GridSampleCall>({.name = "grid_sample",
                               .title = "samples at the positions of a grid",
                               .check = CheckForward,
                               .cost = Cost,
                               .sample = MakeSample});
constinit const FamilyDescriptor kGridSampleBackwardFamily =
    Described<GridSampleBackwardCall>({.name = "grid_sample_backward",
                                       .title = "gradients of samples at the positions of a grid",
                                       .check = CheckBackward,
                                       .cost = CostOfBackward,
                                       .sample = MakeBackwardSample});

}  // namespace xpud::ops
