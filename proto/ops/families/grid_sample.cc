// Samples of planes at positions that a grid gives: out[N, C, O..] <- self[N, C, I..], grid[N, O.., D], where
// D (2 or 3) is the number of spatial dimensions. A position is (x, y) or (x, y, z); -1 to 1 spans the plane.
// Backward: grad_input[N, C, I..], grad_grid[N, O.., D] <- grad_output[N, C, O..], self, grid. It adds to
// grad_input.
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kInputs[] = {{"input"}, {"grid"}}, kOut[] = {{"out"}};
constexpr Parameter kGradients[] = {{"grad_input"}, {"grad_grid"}};
constexpr Parameter kBackwardInputs[] = {{"grad_output"}, {"input"}, {"grid"}};
constexpr Attribute kAttributes[] = {
    {"interpolation_mode", AttributeType::kInteger},  // 0: linear, 1: nearest,
    {"padding_mode", AttributeType::kInteger},        // 2: cubic; 0: zeros, 1:
    {"align_corners", AttributeType::kBool}};         // border, 2: reflection

absl::Status CheckShapes(const Call& call, const Operand& input, const Operand& grid, const Operand& out) {
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
  const int64_t mode = call.attributes[0].AsInteger(), padding = call.attributes[1].AsInteger();
  if (mode < 0 || mode > (spatial == 2 ? 2 : 1) || padding < 0 || padding > 2)
    return absl::InvalidArgumentError(absl::StrCat("interpolation ", mode, " with padding ", padding));
  return absl::OkStatus();
}

absl::Status CheckForward(const Call& call) {
  return CheckShapes(call, call.inputs[0], call.inputs[1], call.outputs[0]);
}

absl::Status CheckBackward(const Call& call) {
  const Operand &gradient = call.inputs[0], &input = call.inputs[1], &grid = call.inputs[2];
  RETURN_IF_ERROR(CheckShapes(call, input, grid, gradient));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], input, "gradient of input"));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[1], grid, "gradient of grid"));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "gradient of input", input.dtype));
  return NeedSameType(call.outputs[1], "gradient of grid", input.dtype);
}

double CostOfSamples(const Operand& out, const Operand& grid) {
  return 64 * (static_cast<double>(out.numel()) + static_cast<double>(grid.numel()));
}

}  // namespace

constinit const FamilyDescriptor kGridSampleFamily = {
    .name = "grid_sample",
    .title = "samples at the positions of a grid",
    .outputs = kOut,
    .inputs = kInputs,
    .attributes = kAttributes,
    .check = CheckForward,
    .cost = [](const Call& call) { return CostOfSamples(call.outputs[0], call.inputs[1]); },
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{1, 1, 2, 2}, type}},
              {{{1, 1, 2, 2}, type}, {{1, 2, 2, 2}, type}},
              {Number::Integer(0), Number::Integer(0), Number::Integer(0)}};
    }};
constinit const FamilyDescriptor kGridSampleBackwardFamily = {
    .name = "grid_sample_backward",
    .title = "gradients of samples at the positions of a grid",
    .outputs = kGradients,
    .inputs = kBackwardInputs,
    .attributes = kAttributes,
    .reads_outputs = true,
    .check = CheckBackward,
    .cost = [](const Call& call) { return 3 * CostOfSamples(call.inputs[0], call.inputs[2]); },
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{1, 1, 2, 2}, type}, {{1, 2, 2, 2}, type}},
              {{{1, 1, 2, 2}, type}, {{1, 1, 2, 2}, type}, {{1, 2, 2, 2}, type}},
              {Number::Integer(0), Number::Integer(0), Number::Integer(0)}};
    }};

}  // namespace xpud::ops
